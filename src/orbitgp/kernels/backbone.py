"""A network that was trained elsewhere as a feature map: what it yields for an image is what k_g compares."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from orbitgp.kernels.image_maps import check_images

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # means and standard deviations of its channels

Images = Float[Tensor, "rows channels height width"]


class Backbone(nn.Module):
    """The output of a frozen network, scaled to unit length.

    The network is copied, put into evaluation mode, and never learned. It stays differentiable in the image, so orbits
    are learned through it. It computes in single precision. On a GPU, it sees images in single precision in half
    precision. Its output is kept for images that come again, as all data do where the orbit has nothing to learn.

    A file holds a checksum of the weights, and not the network: :meth:`load` of an estimator asks for the feature map,
    and refuses one with other weights.

        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 5))
        >>> Backbone(network)(torch.rand(10, 3, 8, 8)).shape
        torch.Size([10, 5])

    Args:
        module: the network; it takes images (N, C, H, W) to one tensor (N, ...).
        mean, std: of the channels; pixels are (x - mean) / std before the network. By default those of ImageNet, for
            images between 0 and 1. Images with one channel are repeated for as many channels.
        size: height and width to which images are resized before; by default they keep theirs.
        half_precision: whether a GPU computes in half precision where images are in single precision.
        cache: bytes that outputs, and the images that they belong to, may take.
    """

    checksum: UInt8[Tensor, " 32"]

    def __init__(
        self,
        module: nn.Module,
        mean: Sequence[float] = _IMAGENET[0],
        std: Sequence[float] = _IMAGENET[1],
        size: int | None = None,
        half_precision: bool = True,
        cache: float = 5e8,
    ) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise ValueError(f"Backbone needs a torch.nn.Module, got {type(module).__name__}.")
        if len(mean) != len(std) or not all(deviation > 0 for deviation in std):
            raise ValueError(f"mean and std must have one number a channel, std above zero; got {mean!r} and {std!r}.")
        if size is not None and size < 1:
            raise ValueError(f"size must be at least 1, got {size}.")
        self.mean, self.std, self.size = tuple(mean), tuple(std), size
        self.half_precision, self.cache = half_precision, cache
        # Not a part of this module: kernels are in double precision, and files hold all parts.
        self._network = _Network(deepcopy(module).eval().requires_grad_(False))
        self.register_buffer("checksum", _checksum(module))
        self.register_load_state_dict_pre_hook(_refuse_other_weights)

    def saved_arguments(self) -> dict[str, Any]:
        return {"module": self._network.module}  # which no file can hold, unless it has no weights

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        check_images(self, x)
        if x.requires_grad:
            return self._mapped(x)
        found = self._network.kept(x)
        if found is None:
            with torch.no_grad():
                found = self._mapped(x)
            self._network.keep(x, found, self.cache)
        return found

    def _mapped(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        images: Images = (x if x.ndim == 4 else x[:, None]).float()
        mean, std = (torch.tensor(values, device=x.device)[:, None, None] for values in (self.mean, self.std))
        if images.shape[1] not in (1, len(mean)):
            raise ValueError(
                f"Backbone has a mean for {len(mean)} channels, but images have {images.shape[1]}: set mean and std."
            )
        if self.size is not None:
            images = F.interpolate(images, (self.size, self.size), mode="bilinear", antialias=True)
        halves = self.half_precision and x.is_cuda and x.dtype == torch.float32
        with torch.autocast(x.device.type, torch.float16, enabled=halves):
            mapped = self._network.module.to(x.device)((images - mean) / std)
        if not isinstance(mapped, Tensor) or mapped.ndim < 2 or mapped.shape[0] != x.shape[0]:
            what = f"shape {tuple(mapped.shape)}" if isinstance(mapped, Tensor) else type(mapped).__name__
            raise ValueError(f"the network must yield one tensor (N, ...), but yields {what}: wrap it so that it does.")
        return F.normalize(mapped.flatten(1).to(x.dtype), dim=1)

    def extra_repr(self) -> str:
        """The class of the network, and how images come to it."""
        return f"{type(self._network.module).__name__}, size={self.size}, half_precision={self.half_precision}"


class _Network:
    """A network, and what it yielded. Copies and pickles have the network alone."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._kept: dict[Any, tuple[Tensor, Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "_kept": {}}

    def kept(self, x: Tensor) -> Tensor | None:
        """What these very images were mapped to, if that is known."""
        images, mapped = self._kept.get(_key(x), (None, None))
        return mapped if images is not None and torch.equal(images, x) else None

    def keep(self, x: Tensor, mapped: Tensor, most: float) -> None:
        """Remember it while there is room."""
        used = sum(tensor.nbytes for pair in self._kept.values() for tensor in pair)
        if used + x.nbytes + mapped.nbytes <= most:
            self._kept[_key(x)] = x.clone(), mapped


def _key(x: Tensor) -> Any:
    return x.shape, x.dtype, x.device, float(x.double().sum())


def _checksum(module: nn.Module) -> UInt8[Tensor, " 32"]:
    """SHA-256 of all weights and their names."""
    found = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return torch.tensor(list(found.digest()), dtype=torch.uint8)


def _refuse_other_weights(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    saved = state.get(f"{prefix}checksum")
    if isinstance(module, Backbone) and saved is not None and not torch.equal(saved.cpu(), module.checksum.cpu()):
        raise RuntimeError("the network has other weights than the one that was saved: hand in that one.")
