//! A buffer as a picture.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    str::FromStr,
};

use elinvar::{DType, Error, Result, Tensor, atlas::is_floating};
use elinvar_check::numbers;

/// `BUFFER=WIDTHxHEIGHT:FILE`.
#[derive(Clone, Debug)]
pub(crate) struct PictureArgument {
    pub(crate) name: String,
    width: u32,
    height: u32,
    file: PathBuf,
}

impl FromStr for PictureArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = || {
            let (name, rest) = text.split_once('=')?;
            let (size, file) = rest.split_once(':').filter(|(_, file)| !file.is_empty())?;
            let (width, height) = size.split_once('x')?;
            let extent = |text: &str| text.parse().ok().filter(|&n: &u32| n > 0);
            Some(Self { name: name.to_owned(), width: extent(width)?, height: extent(height)?, file: file.into() })
        };
        parts().ok_or_else(|| Error::invalid_argument(format!("'{text}': write BUFFER=WIDTHxHEIGHT:FILE, such as counts=640x320:counts.png")))
    }
}

/// Greys: u8 as they are. Other types from the least value, black, to the greatest, white: integers by how many points have a lesser value, so
/// that few large ones do not hide the rest; NaN is black.
fn greys(dtype: DType, bytes: Vec<u8>) -> Vec<u8> {
    if dtype == DType::U8 {
        return bytes;
    }
    let mut values = numbers(dtype, &bytes);
    if !is_floating(dtype) {
        let mut sorted = values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        values.iter_mut().for_each(|value| *value = sorted.partition_point(|other| other < value) as f64);
    }
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
    values.iter().map(|value| ((value - low) * scale).round() as u8).collect()
}

impl PictureArgument {
    /// Writes the buffer: an element for each point, or three of u8, red, green and blue; rows from the top.
    pub(crate) fn write(&self, tensor: &Tensor) -> Result<()> {
        let (dtype, points) = (tensor.dtype(), self.width as usize * self.height as usize);
        let elements = tensor.shape().elements();
        let color = match elements {
            n if n == points => png::ColorType::Grayscale,
            n if dtype == DType::U8 && n == 3 * points => png::ColorType::Rgb,
            _ => {
                let (name, width, height) = (&self.name, self.width, self.height);
                return Err(Error::invalid_argument(format!("--png {name}: {elements} elements are no picture of {width}x{height} points")));
            }
        };
        write_png(&self.file, [self.width, self.height], color, &greys(dtype, tensor.to_bytes()?))
    }
}

/// Writes a picture of 8 bits a channel, rows from the top.
pub(crate) fn write_png(path: &Path, [width, height]: [u32; 2], color: png::ColorType, bytes: &[u8]) -> Result<()> {
    let shown = path.display();
    let file = File::create(path).map_err(|cause| Error::io(format!("cannot write {shown}: {cause}")))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let failed = |cause: png::EncodingError| Error::io(format!("cannot write {shown}: {cause}"));
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(bytes).and_then(|()| writer.finish()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_named_with_their_size() {
        let picture: PictureArgument = "y=4x2:C:/a.png".parse().unwrap();
        assert_eq!((picture.name.as_str(), picture.width, picture.height, picture.file), ("y", 4, 2, PathBuf::from("C:/a.png")));
        for wrong in ["y", "y=4:a.png", "y=4x0:a.png", "y=4x2:", "y=4x2"] {
            assert!(wrong.parse::<PictureArgument>().unwrap_err().to_string().contains("WIDTHxHEIGHT"), "{wrong}");
        }
    }

    #[test]
    fn the_least_is_black_and_the_greatest_white() {
        let bytes = [-1f32, 0.0, 1.0, f32::NAN].map(f32::to_ne_bytes).concat();
        assert_eq!(greys(DType::F32, bytes), [0, 128, 255, 0]);
        assert_eq!(greys(DType::I32, 7i32.to_ne_bytes().repeat(2)), [0, 0]);
        assert_eq!(greys(DType::U8, vec![3, 9]), [3, 9]);
        assert_eq!(greys(DType::I32, [-1i32, 1 << 30, 2, -1].map(i32::to_ne_bytes).concat()), [0, 255, 170, 0]);
    }
}
