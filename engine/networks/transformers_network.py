"""Any causal model of transformers behind the KV caches: its attention is replaced by ours, its layers are watched for
features."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from engine.kernels.native_sampler import NativeSampler
from engine.networks.attention import Span, collect_feature_layers, keep_features


class TransformersNetwork:
    """A transformers causal model, whose attention implementation must be `attend_spans`."""

    sampler: NativeSampler | None = None

    def __init__(self, hf_model: Any, vocab_size: int) -> None:
        self.hf_model = hf_model.eval()
        self.vocab_size = vocab_size
        self.device = next(hf_model.parameters()).device
        embedding, head = hf_model.get_input_embeddings().weight, hf_model.get_output_embeddings().weight
        forward_parameters = [
            parameter for parameter in hf_model.parameters() if parameter is not embedding or parameter is head
        ]
        self.weight_bytes = sum(parameter.nbytes for parameter in forward_parameters)

    def __call__(self, token_ids: Tensor, positions: Tensor, spans: Sequence[Span], logit_rows: Tensor) -> Tensor:
        layers = getattr(self.hf_model.base_model, "layers", ())
        with contextlib.ExitStack() as hooks:
            for layer in collect_feature_layers(spans, len(layers)):
                hooks.callback(_hook_features(layers, layer, spans).remove)
            logits: Tensor = self.hf_model(
                input_ids=token_ids[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=logit_rows,
                spans=spans,
            ).logits
        return logits[0]

    def embed(self, token_ids: Tensor) -> Tensor:
        embeddings: Tensor = self.hf_model.get_input_embeddings()(token_ids)
        return embeddings


def _hook_features(layers: Any, layer: int, spans: Sequence[Span]) -> Any:
    """Hooks into a transformers model: keeps the features of `layer` on the way. Returns the handle that undoes it."""

    def keep_input(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        keep_features(layer, hidden[0], spans)

    def keep_output(module: Any, args: tuple[Any, ...], output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        keep_features(layer, hidden[0], spans)

    if layer == len(layers):
        return layers[-1].register_forward_hook(keep_output)
    return layers[layer].register_forward_pre_hook(keep_input, with_kwargs=True)
