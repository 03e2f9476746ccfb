//! The losses of a training as a picture.

use elinvar::Result;
use elinvar_llm::TrainingFolder;

use crate::kernel::write_png;

const WIDTH: usize = 800;
const HEIGHT: usize = 400;
const MARGIN: usize = 30;
/// On the left, where the losses stand.
const LEFT: usize = 60;
/// Pixels of a glyph's dot.
const DOT: usize = 2;

const PAPER: [u8; 3] = [255, 255, 255];
const GRID: [u8; 3] = [225, 225, 225];
const LABEL: [u8; 3] = [90, 90, 90];
const STEPS: [u8; 3] = [150, 185, 230];
const MEAN: [u8; 3] = [25, 80, 170];
const VALIDATION: [u8; 3] = [210, 90, 20];

/// Steps and what they have.
type Points = Vec<(f64, f64)>;

/// Writes `loss.png`: the loss of each step, its running mean over a twentieth of the steps, and the validation loss in orange.
pub(super) fn write(folder: &TrainingFolder) -> Result<()> {
    let lines = folder.logged()?;
    let points = |key: &str| -> Points { lines.iter().filter_map(|line| Some((line["step"].as_f64()?, line[key].as_f64()?))).collect() };
    let (losses, validation) = (points("loss"), points("validation_loss"));
    if losses.is_empty() {
        return Ok(());
    }
    let mut picture = Picture::new(losses.iter().chain(&validation));
    picture.draw(&losses, STEPS);
    picture.draw(&running_mean(&losses), MEAN);
    picture.draw(&validation, VALIDATION);
    write_png(&folder.file("loss.png"), [WIDTH as u32, HEIGHT as u32], png::ColorType::Rgb, &picture.bytes)
}

/// Of each point and those before it.
fn running_mean(points: &Points) -> Points {
    let width = (points.len() / 20).max(1);
    let mean = |end: usize| points[(end + 1).saturating_sub(width)..=end].iter().map(|(_, loss)| loss).sum::<f64>() / width.min(end + 1) as f64;
    points.iter().enumerate().map(|(end, (step, _))| (*step, mean(end))).collect()
}

struct Picture {
    bytes: Vec<u8>,
    /// The least and the greatest step, and loss.
    ranges: [[f64; 2]; 2],
}

impl Picture {
    fn new<'a>(points: impl Iterator<Item = &'a (f64, f64)> + Clone) -> Self {
        let range =
            |values: &mut dyn Iterator<Item = f64>| values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], x| [low.min(x), high.max(x)]);
        let ranges = [range(&mut points.clone().map(|(step, _)| *step)), range(&mut points.map(|(_, loss)| *loss))];
        let mut picture = Self { bytes: PAPER.repeat(WIDTH * HEIGHT), ranges };
        let [[first, last], [low, high]] = ranges;
        for (loss, text) in ticks([low, high], 6, 1e-5) {
            let y = picture.place((first, loss))[1] as usize;
            (LEFT..WIDTH - MARGIN).for_each(|x| picture.point([x, y], GRID));
            picture.text([LEFT.saturating_sub(8 + width(&text)), y - 5], &text);
        }
        for (step, text) in ticks([first, last], 8, 1.0) {
            let x = picture.place((step, low))[0] as usize;
            (HEIGHT - MARGIN..HEIGHT - MARGIN + 4).for_each(|y| picture.point([x, y], GRID));
            picture.text([x - width(&text) / 2, HEIGHT - MARGIN + 8], &text);
        }
        picture.text([8, 8], "loss");
        picture.text([8, HEIGHT - MARGIN + 8], "step");
        picture
    }

    fn text(&mut self, [left, top]: [usize; 2], text: &str) {
        for (place, letter) in text.chars().enumerate() {
            let dots = (0..15).filter(|dot| glyph(letter) >> (14 - dot) & 1 == 1);
            for (dot, (x, y)) in dots.flat_map(|dot| (0..DOT * DOT).map(move |part| (dot, (part % DOT, part / DOT)))) {
                self.point([left + (4 * place + dot % 3) * DOT + x, top + dot / 3 * DOT + y], LABEL);
            }
        }
    }

    /// Where a point lies, from the upper left.
    fn place(&self, (step, loss): (f64, f64)) -> [f64; 2] {
        let along = |x: f64, [low, high]: [f64; 2], extent: usize| (x - low) / (high - low).max(1e-9) * (extent - 1) as f64;
        let [steps, losses] = self.ranges;
        let [x, y] = [along(step, steps, WIDTH - LEFT - MARGIN), along(loss, losses, HEIGHT - 2 * MARGIN)];
        [LEFT as f64 + x, (HEIGHT - MARGIN - 1) as f64 - y]
    }

    fn point(&mut self, [x, y]: [usize; 2], color: [u8; 3]) {
        if x < WIDTH && y < HEIGHT {
            self.bytes[3 * (y * WIDTH + x)..][..3].copy_from_slice(&color);
        }
    }

    /// Lines from point to point.
    fn draw(&mut self, points: &Points, color: [u8; 3]) {
        for (from, to) in points.iter().zip(points.iter().skip(1).chain(points.last())) {
            let ([x, y], [next_x, next_y]) = (self.place(*from), self.place(*to));
            let count = (next_x - x).abs().max((next_y - y).abs()).ceil().max(1.0);
            for part in 0..=count as usize {
                let along = part as f64 / count;
                let [x, y] = [x + (next_x - x) * along, y + (next_y - y) * along].map(|at| at.round() as usize);
                self.point([x, y], color);
                self.point([x, y + 1], color);
            }
        }
    }
}

/// Round numbers in a range, at most so many and at least `least` apart, and how they are written.
fn ticks([low, high]: [f64; 2], most: usize, least: f64) -> Vec<(f64, String)> {
    let rough = ((high - low) / most as f64).max(least);
    let power = 10f64.powf(rough.log10().floor());
    let apart = [1.0, 2.0, 5.0].map(|times| times * power).into_iter().find(|apart| *apart >= rough).unwrap_or(10.0 * power);
    let decimals = (-apart.log10().floor()).clamp(0.0, 5.0) as usize;
    let (first, last) = ((low / apart - 1e-6).ceil() as i64, (high / apart + 1e-6).floor() as i64);
    (first..=last).take(most + 1).map(|number| number as f64 * apart).map(|x| (x, format!("{x:.decimals$}"))).collect()
}

/// Pixels of a text from left to right.
fn width(text: &str) -> usize {
    (4 * text.len() - 1) * DOT
}

/// Three dots in each of five rows, from the upper left.
fn glyph(letter: char) -> u16 {
    match letter {
        '0' => 0b111_101_101_101_111,
        '1' => 0b010_110_010_010_111,
        '2' => 0b111_001_111_100_111,
        '3' => 0b111_001_111_001_111,
        '4' => 0b101_101_111_001_001,
        '5' => 0b111_100_111_001_111,
        '6' => 0b111_100_111_101_111,
        '7' => 0b111_001_010_010_010,
        '8' => 0b111_101_111_101_111,
        '9' => 0b111_101_111_001_111,
        '.' => 0b000_000_000_000_010,
        '-' => 0b000_000_111_000_000,
        'e' => 0b000_111_111_100_111,
        'l' => 0b110_010_010_010_111,
        'o' => 0b000_111_101_101_111,
        'p' => 0b000_111_101_111_100,
        's' => 0b000_111_110_011_111,
        't' => 0b010_111_010_010_011,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        let written = |range: [f64; 2], most: usize, least: f64| ticks(range, most, least).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(written([1.31, 4.02], 6, 1e-5), ["1.5", "2.0", "2.5", "3.0", "3.5", "4.0"]);
        assert_eq!(written([1.0, 1000.0], 8, 1.0), ["200", "400", "600", "800", "1000"]);
        assert_eq!(written([1.0, 3.0], 8, 1.0), ["1", "2", "3"]);
        assert_eq!(written([0.00119, 0.00125], 3, 1e-5), ["0.00120", "0.00122", "0.00124"]);
        assert_eq!((written([2.5, 2.5], 6, 1e-5), written([1.0, 1.0], 8, 1.0)), (vec!["2.50000".to_owned()], vec!["1".to_owned()]));
    }

    #[test]
    fn losses_fall_from_the_upper_left_to_the_lower_right() {
        let points = vec![(1.0, 4.0), (2.0, 2.5), (3.0, 2.0)];
        let mut picture = Picture::new(points.iter());
        picture.draw(&points, MEAN);
        let color = |x: usize, y: usize| &picture.bytes[3 * (y * WIDTH + x)..][..3];
        assert_eq!((color(LEFT, MARGIN), color(WIDTH - MARGIN - 1, HEIGHT - MARGIN - 1)), (&MEAN[..], &MEAN[..]));
        // The grid's line of 3, which the losses cross further to the left, and its label; paper beside the margin.
        assert_eq!((color(WIDTH - MARGIN - 1, HEIGHT / 2 - 1), color(0, 0)), (&GRID[..], &PAPER[..]));
        assert_eq!(color(LEFT - 8 - width("3.0"), HEIGHT / 2 - 6), &LABEL[..]);
        assert_eq!(running_mean(&points), points);
    }
}
