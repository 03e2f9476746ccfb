//! A model with an adapter: the same weights, with what the adapter adds to them.

use elinvar::{DType, Error, Result, Tensor};

use super::{
    Model,
    low_rank::LowRank,
    matrix::Matrix,
    module::Module,
    parts::{Linear, Norm},
};

/// A matrix, or the weight of a norm, of a checkpoint that an adapter may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its name without `.weight`.
    pub(crate) name: String,
    /// `[rows, columns]`; of a norm `[width, 1]`.
    pub(crate) extents: [usize; 2],
    pub(crate) kind: PlaceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKind {
    /// A linear layer.
    Linear,
    /// The output projection.
    Head,
    /// The embedding.
    Embedding,
    /// A norm.
    Norm,
}

/// What becomes of a matrix, or a norm's weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// LoRA, or DoRA.
    LowRank { rank: usize, scale: f32, dora: bool },
    /// Another takes its place.
    Replaced,
}

impl Place {
    /// The tensors that a change takes: what their names end with, and their extents.
    pub(crate) fn tensors(&self, change: Change) -> Vec<(&'static str, Vec<usize>)> {
        let [rows, columns] = self.extents;
        match change {
            Change::Replaced if self.kind == PlaceKind::Norm => vec![("weight", vec![rows])],
            Change::Replaced => vec![("weight", vec![rows, columns])],
            Change::LowRank { rank, dora, .. } => {
                let low_rank = [("lora_A.weight", vec![rank, columns]), ("lora_B.weight", vec![rows, rank])];
                low_rank.into_iter().chain(dora.then(|| ("lora_magnitude_vector", vec![rows]))).collect()
            }
        }
    }
}

/// The embedding.
pub(crate) const EMBEDDING: &str = "model.embed_tokens";
/// The output projection.
pub(crate) const HEAD: &str = "lm_head";

impl Model {
    /// Its linear layers, the output projection last.
    pub(super) fn modules(&mut self) -> Vec<Module<'_>> {
        let fused = self.config.fused_projections;
        let layers = self.layers.iter_mut().enumerate();
        let mut modules: Vec<_> = layers.flat_map(|(index, layer)| layer.modules(&format!("model.layers.{index}"), fused)).collect();
        modules.push(Module { name: HEAD.to_owned(), parts: vec![&mut self.head] });
        modules
    }

    /// Its norms, by the names that checkpoints have for them; the last layer's stream has the last.
    fn norms(&mut self) -> Vec<(String, &mut Norm)> {
        let layers = self.layers.iter_mut().enumerate();
        let mut norms: Vec<_> = layers.flat_map(|(index, layer)| layer.norms(&format!("model.layers.{index}"))).collect();
        norms.push(("model.norm".to_owned(), &mut self.norm));
        norms
    }

    /// The weight of a norm.
    fn norm(&mut self, name: &str) -> Result<&mut Norm> {
        let norm = self.norms().into_iter().find(|(known, _)| known == name).map(|(_, norm)| norm);
        norm.ok_or_else(|| Error::internal(format!("there is no norm '{name}'")))
    }

    /// Whether the embedding is bf16, and no layer is quantised.
    pub(super) fn is_bf16(&self) -> bool {
        let is_narrow = matches!(&self.embedding, Matrix::Plain(embedding) if embedding.dtype() == DType::BF16);
        let mut model = self.clone();
        is_narrow && model.modules().iter_mut().flat_map(Module::rows).all(|(_, linear)| matches!(linear.weight, Matrix::Plain(_)))
    }

    /// What an adapter may change, layer by layer.
    pub(crate) fn places(&self) -> Vec<Place> {
        let (mut model, mut normed) = (self.clone(), self.clone());
        let kind = |name: &str| if name == HEAD { PlaceKind::Head } else { PlaceKind::Linear };
        let modules = model.modules();
        let linear = modules.iter().map(|module| Place { kind: kind(&module.name), extents: module.extents(), name: module.name.clone() });
        let embedding = Place { name: EMBEDDING.to_owned(), extents: self.embedding.extents(), kind: PlaceKind::Embedding };
        let extents = |norm: &Norm| [norm.stored().shape().elements(), 1];
        let norms = normed.norms().into_iter().map(|(name, norm)| Place { extents: extents(norm), name, kind: PlaceKind::Norm });
        linear.chain([embedding]).chain(norms).collect()
    }

    /// A model of the same weights with these changes, whose tensors `tensor` gives by name and extents.
    ///
    /// # Errors
    /// Those of `tensor`; a place that the model does not have.
    pub(crate) fn changed(&self, changes: &[(Place, Change)], tensor: &mut dyn FnMut(&str, &[usize]) -> Result<Tensor>) -> Result<Self> {
        let mut model = self.clone();
        for (place, change) in changes {
            let mut tensors = Vec::new();
            for (name, dims) in place.tensors(*change) {
                tensors.push(tensor(&format!("{}.{name}", place.name), &dims)?);
            }
            match (place.kind, change) {
                (PlaceKind::Embedding, Change::Replaced) => {
                    model.embedding = Matrix::Plain(tensors.into_iter().next().ok_or_else(|| Error::internal("an embedding without a tensor"))?);
                }
                (PlaceKind::Norm, Change::Replaced) => {
                    let weight = tensors.into_iter().next().ok_or_else(|| Error::internal("a norm without a tensor"))?;
                    model.norm(&place.name)?.replace(weight)?;
                }
                (PlaceKind::Embedding | PlaceKind::Norm, Change::LowRank { .. }) => {
                    return Err(Error::internal(format!("'{}' is no linear layer", place.name)));
                }
                (PlaceKind::Linear | PlaceKind::Head, change) => {
                    let mut modules = model.modules();
                    let module = modules.iter_mut().find(|module| module.name == place.name);
                    let module = module.ok_or_else(|| Error::internal(format!("there is no linear layer '{}'", place.name)))?;
                    for (rows, linear) in module.rows() {
                        let own = |tensor: &Tensor| {
                            if tensor.shape()[0] == rows.len() { Ok(tensor.clone()) } else { tensor.slice(0, rows.start, rows.len(), 1) }
                        };
                        linear.change(*change, &tensors, &own)?;
                    }
                }
            }
        }
        Ok(model)
    }

    /// What is at a place, with what an adapter adds to it, of the type that it is stored in; f32 if it is quantised.
    ///
    /// # Errors
    /// A failed device.
    pub(crate) fn merged(&self, place: &Place) -> Result<Tensor> {
        if place.kind == PlaceKind::Embedding {
            return self.embedding.decoded();
        }
        let mut model = self.clone();
        if place.kind == PlaceKind::Norm {
            return Ok(model.norm(&place.name)?.stored().clone());
        }
        let mut modules = model.modules();
        let module = modules.iter_mut().find(|module| module.name == place.name);
        let module = module.ok_or_else(|| Error::internal(format!("there is no linear layer '{}'", place.name)))?;
        if self.executor.ranks() > 1 {
            return Err(Error::unsupported("weights of a model on a group of devices, of which each rank has a part: load it on one device"));
        }
        let parts = module.rows().map(|(_, linear)| linear.merged()).collect::<Result<Vec<_>>>()?;
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0)
    }

    /// The model with its adapter in its weights: as fast as one without.
    ///
    /// # Errors
    /// Out of memory, or a failed device.
    pub fn merge(&self) -> Result<Self> {
        let mut model = self.clone();
        for module in &mut model.modules() {
            for (_, linear) in module.rows().filter(|(_, linear)| linear.adapter.is_some()) {
                linear.weight = Matrix::Plain(linear.merged()?);
                linear.adapter = None;
            }
        }
        Ok(model)
    }
}

impl Linear {
    /// `tensors` are those of a checkpoint's layer, of which `rows` gives the rows of this one.
    fn change(&mut self, change: Change, tensors: &[Tensor], rows: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        let own = |tensor: &Tensor| self.own(&rows(tensor)?);
        match (change, tensors) {
            (Change::Replaced, [weight]) => self.weight = Matrix::Plain(own(weight)?),
            (Change::LowRank { scale, .. }, [a, b, magnitude @ ..]) => {
                let (b, magnitude) = (own(b)?, magnitude.first().map(own).transpose()?);
                self.adapter = Some(LowRank::new(&self.weight, [a.clone(), b], scale, magnitude)?);
            }
            (Change::Replaced | Change::LowRank { .. }, _) => return Err(Error::internal("a change without its tensors")),
        }
        Ok(())
    }

    /// Its weight with the adapter in it.
    fn merged(&self) -> Result<Tensor> {
        let Some(adapter) = &self.adapter else { return self.weight.decoded() };
        let dtype = match &self.weight {
            Matrix::Plain(weight) => weight.dtype(),
            Matrix::Packed { .. } => DType::F32,
        };
        adapter.merged(&self.weight)?.cast(dtype)
    }
}
