//! Language models and encoders. `python/elinvar/models.py` and `lora.py` wrap what is here, with types and documentation.

mod device;
mod encoder;
mod model;
mod stream;
mod tokenizer;
mod training;

pub(crate) use encoder::NativeEncoder;
pub(crate) use model::NativeModel;
pub(crate) use stream::NativeStream;
pub(crate) use tokenizer::NativeTokenizer;
pub(crate) use training::_train;
