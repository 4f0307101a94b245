//! The layers of a model: which pipeline stage holds which layers, and the bytes of each on one rank.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{GeometryError, element_bytes};
use crate::spec::{Spec, TransformerSpec};

/// The layers of a model as one rank holds them, numbered from 1. In a transformer, 0 is the embedding, and the head
/// and the final norm follow the last layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layers {
    count: u64,
    stages: u64,
    kind: LayerKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum LayerKind {
    /// Every layer has these bytes on a rank.
    Listed {
        bytes: u64,
    },
    Transformer {
        whole: ModelElements,
        tensor: u64,
        shards: u64,
        element_bytes: u64,
    },
}

/// Elements of a transformer's tensors, before they are divided among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ModelElements {
    embedding: u64,
    hidden: u64,
    attention_in: u64,
    attention_out: u64,
    feed_in: u64,
    feed_out: u64,
}

impl ModelElements {
    fn of(shape: &TransformerSpec) -> Option<ModelElements> {
        let hidden = shape.hidden_size;
        let keys = (hidden / shape.num_attention_heads).checked_mul(shape.num_kv_heads)?;
        let feed_out = hidden.checked_mul(shape.ffn_hidden_size)?;
        Some(ModelElements {
            embedding: shape.vocab_size.checked_mul(hidden)?,
            hidden,
            attention_in: keys.checked_mul(2)?.checked_add(hidden)?.checked_mul(hidden)?,
            attention_out: hidden.checked_mul(hidden)?,
            feed_in: feed_out.checked_mul(2)?,
            feed_out,
        })
    }

    /// The number of parameters of a transformer with this many layers.
    fn parameters(&self, layers: u64) -> Option<u64> {
        let parts =
            [self.hidden, self.attention_in, self.attention_out, self.hidden, self.feed_in, self.feed_out];
        let layer = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part))?;
        let ends = self.embedding.checked_mul(2)?.checked_add(self.hidden)?;
        layer.checked_mul(layers)?.checked_add(ends)
    }
}

impl Layers {
    /// The model's layers; `None` if it has none. With ZeRO 3, `data` copies of the model share each tensor.
    pub(super) fn of(spec: &Spec, data: u64) -> Result<Option<Layers>, GeometryError> {
        let model = &spec.model;
        let Some(count) = u64::try_from(model.num_layers).ok().filter(|count| *count > 0) else {
            return Ok(None);
        };
        let (tensor, stages) = (model.parallelism.tensor, model.parallelism.pipeline);
        let kind = if model.layer_parameters.is_empty() {
            let whole = ModelElements::of(&model.transformer).ok_or(GeometryError::TooLarge)?;
            whole.parameters(count).ok_or(GeometryError::TooLarge)?;
            let shards = if model.parallelism.zero_stage == 3 { data } else { 1 };
            LayerKind::Transformer {
                whole,
                tensor,
                shards,
                element_bytes: element_bytes(model.model_datatype),
            }
        } else {
            LayerKind::Listed { bytes: model.layer_parameters.iter().map(|elements| elements / tensor).sum() }
        };
        Ok(Some(Layers { count, stages, kind }))
    }

    /// Parameters of a transformer.
    pub(super) fn parameters(&self) -> Option<u64> {
        match &self.kind {
            LayerKind::Listed { .. } => None,
            LayerKind::Transformer { whole, .. } => whole.parameters(self.count),
        }
    }

    /// The layers of a stage: equal shares; if there is a remainder, the first stages have one more.
    pub(super) fn of_stage(&self, stage: u64) -> RangeInclusive<u64> {
        let (share, more) = (self.count / self.stages, self.count % self.stages);
        let first = stage * share + stage.min(more) + 1;
        let last = first + share + u64::from(stage < more) - 1;
        if matches!(self.kind, LayerKind::Listed { .. }) {
            return first..=last;
        }
        let first = if stage == 0 { 0 } else { first };
        let last = if stage + 1 == self.stages { self.count + 2 } else { last };
        first..=last
    }

    /// Bytes of a layer on one rank.
    pub(super) fn bytes(&self, layer: u64) -> u64 {
        let (whole, tensor, shards, element_bytes) = match &self.kind {
            LayerKind::Listed { bytes } => return *bytes,
            LayerKind::Transformer { whole, tensor, shards, element_bytes } => {
                (whole, *tensor, *shards, *element_bytes)
            }
        };
        // Norms are vectors that every tensor-parallel rank holds in full.
        let norm = whole.hidden / shards;
        let matrix = |elements: u64| elements / tensor / shards;
        let elements = if layer == 0 || layer == self.count + 1 {
            matrix(whole.embedding)
        } else if layer == self.count + 2 {
            norm
        } else {
            let parts = [whole.attention_in, whole.attention_out, whole.feed_in, whole.feed_out];
            parts.map(matrix).into_iter().fold(2 * norm, u64::saturating_add)
        };
        // Saturates; the total is then too large and is refused.
        elements.saturating_mul(element_bytes)
    }
}
