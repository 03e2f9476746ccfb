//! Rows of quantised weights as floats.
//!
//! * Each element is `scale · q + offset`, both operations rounded: the bits of [`Format::decode`]; then it is rounded to the type of the output.
//! * Memory: the rows are read once, the output is written once.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, Extent, HostArguments, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    dot,
    float::{Float, with_float},
    metal::{self, metal_file, params},
    order,
    parallel::for_each_part,
    quantized::{self, CHUNK, Format, format::with_blocks, packed},
    signature::{misshapen, operands},
};

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Params::METAL, dot::PAIRS, quantized::METAL, metal_file!("dequantize/dequantize.metal")];

/// Threads of a threadgroup, each with a quarter of a chunk.
const THREADS: usize = 256;

attributes! {
    /// Packed rows of quantised weights as floats. Input `x [rows, packed bytes of width elements]`, u8; output `[rows, width]`.
    #[derive(Clone, Copy, Debug)]
    pub struct Dequantize {
        /// The rows' format.
        pub format: Format,
        /// Elements of a row.
        pub width: u64,
        /// The type of the output.
        pub dtype: DType = f32,
    }
}

params! {
    /// The rows.
    struct Params {
        /// How many there are.
        pub rows: u64,
        /// 32 elements each of a row.
        pub chunks: u64,
        /// Bytes of a row.
        pub row_bytes: u64,
        /// The format's place in [`Format::ALL`].
        pub format: u64,
    }
}

operands! {
    x: read(&[DType::U8]), "[rows, packed bytes of width elements]";
    -> y: write(DType::FLOATS), "[rows, width]";
}
use operands::{AT, Inputs};

impl Dequantize {
    /// Elements of a row.
    fn width(&self, Inputs { x }: Inputs) -> Result<usize> {
        let (format, width) = (self.format, self.width);
        let elements = usize::try_from(width).ok();
        let Some((elements, row_bytes)) = elements.and_then(|elements| Some((elements, format.packed_row_bytes(elements)?))) else {
            let weights = format.weights();
            return Err(Error::invalid_argument(format!("width is {width}: expected whole blocks of {format}, {weights} elements each")));
        };
        if x.shape().rank() == 2 && x.shape()[1] == row_bytes {
            return Ok(elements);
        }
        Err(misshapen!(x; "[rows, {row_bytes}], packed rows of {width} elements in {format}"))
    }
}

impl Operator for Dequantize {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = Inputs::new(inputs)?;
        let width = self.width(inputs)?;
        Ok(vec![TensorInfo::new(self.dtype, &[inputs.x.shape()[0], width])?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(inputs)?;
        let chunks = self.width(inputs)? / CHUNK;
        let rows = inputs.x.shape()[0];
        let params = Params { rows: rows as u64, chunks: chunks as u64, row_bytes: inputs.x.shape()[1] as u64, format: self.format as u64 };
        let groups = u32::try_from((4 * rows * chunks).div_ceil(THREADS))
            .map_err(|_| Error::unsupported(format!("{rows} rows of {} elements are too many for one launch", self.width)))?;
        let key = KernelKey::new(format!("dequantize_{}", self.format), &[self.dtype]);
        let launch = Launch::new(key, with_float!(self.dtype, T => run::<T>), &params, inputs.parameters(outputs)?);
        let form = MetalForm::new(FILES, "dequantize").with_arguments(self.format.object());
        Ok(launch.with_metal(form).over(Extent::linear(groups), Extent::linear(THREADS as u32)).into())
    }
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { chunks, row_bytes, format, .. } = arguments.params()?;
    let format = Format::ALL.get(format as usize).ok_or_else(|| Error::internal(format!("there is no format {format}")))?;
    let (x, y) = (arguments.input::<u8>(AT.x)?, arguments.output::<T>(AT.y)?);
    let (width, row_bytes) = (CHUNK * chunks as usize, row_bytes as usize);
    if y.is_empty() {
        return Ok(());
    }
    let decode = with_blocks!(format, F => packed::decode::<F>);
    for_each_part(y, width, |row, y| {
        let mut values = vec![0.0; width];
        decode(&x[row * row_bytes..][..row_bytes], &mut values);
        T::narrow_into(&values, y);
    });
    Ok(())
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!("dequantize", "packed rows of quantised weights as floats", operands, Dequantize)];
