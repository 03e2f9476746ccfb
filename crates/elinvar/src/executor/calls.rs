//! What calls come to, kept for each device: a call like one before it, of the same operator on operands of the same types and layouts, is neither checked nor
//! planned again.

use std::{
    cell::RefCell,
    sync::{Arc, PoisonError, RwLock},
};

use elinvar_core::{Buffer, CommandList, FastMap, ListBuilder, Result};
use elinvar_kernels::{Operator, TensorInfo, encode, plan_for};

use super::{
    byte_size,
    types::{checked_types, infos},
};
use crate::{executor::Executor, tensor::Tensor};

/// Calls that a device keeps. Where there are more, all begin again.
const MOST: usize = 1024;

/// An operator that is kept for many calls: what identifies it is found once.
#[derive(Clone, Debug)]
pub struct KeptOperator {
    pub(super) operator: Arc<dyn Operator>,
    pub(super) identity: Arc<[u8]>,
}

impl KeptOperator {
    /// Keeps an operator.
    ///
    /// ```
    /// # use elinvar::{KeptOperator, kernels::copy::Copy};
    /// let kept = KeptOperator::new(std::sync::Arc::new(Copy));
    /// ```
    pub fn new(operator: Arc<dyn Operator>) -> Self {
        let mut identity = Vec::new();
        operator.identify(&mut identity);
        Self { operator, identity: identity.into() }
    }
}

/// An operator's commands over stand-ins for its operands.
pub(super) struct Call {
    /// Its results.
    pub(super) types: Vec<TensorInfo>,
    /// Bytes of what it needs in between.
    pub(super) scratch: Vec<usize>,
    pub(super) list: Arc<CommandList>,
    /// What stands for the inputs that are there, the results and what is in between, in this order.
    pub(super) places: Vec<Buffer>,
}

#[derive(Default)]
struct Calls(RwLock<FastMap<Box<[u8]>, Arc<Call>>>);

impl Calls {
    fn keep(&self, key: &[u8], call: Call) -> Arc<Call> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        let call = Arc::new(call);
        known.insert(key.into(), call.clone());
        call
    }
}

thread_local! {
    /// The key of a call that is looked for.
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Executor {
    /// What an operator on these tensors comes to.
    ///
    /// # Errors
    /// What the operator rejects, or a kernel that does not compile.
    pub(super) fn call(&self, operator: &dyn Operator, identity: Option<&[u8]>, inputs: &[Option<&Tensor>]) -> Result<Arc<Call>> {
        let calls = self.device.cached::<Calls>();
        let mut key = KEY.take();
        key.clear();
        match identity {
            Some(identity) => key.extend_from_slice(identity),
            None => operator.identify(&mut key),
        }
        for input in inputs {
            key.push(u8::from(input.is_some()));
            input.iter().for_each(|input| TensorInfo::identify(input.dtype(), input.layout(), &mut key));
        }
        let known = calls.0.read().unwrap_or_else(PoisonError::into_inner).get(&*key).cloned();
        let call = known.map_or_else(|| self.plan(operator, inputs).map(|made| calls.keep(&key, made)), Ok);
        KEY.set(key);
        call
    }

    fn plan(&self, operator: &dyn Operator, inputs: &[Option<&Tensor>]) -> Result<Call> {
        let infos = infos(inputs);
        let types = checked_types(operator, &infos)?;
        let plan = plan_for(operator, &infos, &types, &self.device)?;
        let mut places = Vec::new();
        let mut stand_in = |bytes, is_read_only| {
            places.push(self.device.stand_in(bytes, is_read_only));
            places[places.len() - 1].bind(0, bytes)
        };
        let input = |(index, info): (usize, &Option<TensorInfo>)| {
            let bytes = |info: &TensorInfo| info.layout.span().len() * info.dtype.size();
            info.as_ref().map(|info| stand_in(bytes(info), !operator.updates(index))).transpose()
        };
        let bound = infos.iter().enumerate().map(input).collect::<Result<Vec<_>>>()?;
        let results = types.iter().map(|info| stand_in(byte_size(info.dtype, info.shape())?, false)).collect::<Result<Vec<_>>>()?;
        let (mut list, mut scratch) = (ListBuilder::new(), Vec::new());
        encode(&plan, &bound, &results, &self.device, &mut list, |bytes| {
            scratch.push(bytes);
            stand_in(bytes, false).map(|binding| binding.buffer().clone())
        })?;
        Ok(Call { types, scratch, list: list.finish(), places })
    }
}
