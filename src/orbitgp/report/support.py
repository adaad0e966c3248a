"""How much evidence it takes to say that data support an invariance, so that the word is wrong in at most one case of twenty
with as few as 40 rows.

Two things make evidence rise by chance, where there is no invariance:

- A fixed model: the probability that its evidence exceeds that of the true one by t nats is at most exp(-t) (Markov).
- A model whose orbit has k learned parameters: its evidence is maximised over these, and gains about half a chi-squared
  variable of k degrees of freedom (Wilks).

Where several orbits are tried, each has its share of the false cases (Bonferroni).
"""

from __future__ import annotations

import math

from scipy.stats import chi2

# The probability of calling for an invariance that is not there, whatever the number of orbits. Both rules hold for many data:
# with 40 rows, a nominal 5 % gave false support in up to 2 of 24 data sets (experiments certainty, part null).
FALSE_SUPPORT = 0.02


def nats_needed(learned: int, tried: int = 1) -> float:
    """Nats by which an orbit with as many learned parameters must be ahead, where ``tried`` orbits were compared with none."""
    share = FALSE_SUPPORT / tried
    return max(-math.log(share), 0.5 * float(chi2.isf(share, learned)) if learned else 0.0)
