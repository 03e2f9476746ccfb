//! The losses of a training as a picture.

use elinvar::Result;
use elinvar_llm::TrainingFolder;

use crate::kernel::write_png;

const WIDTH: usize = 800;
const HEIGHT: usize = 400;
const MARGIN: usize = 20;

const PAPER: [u8; 3] = [255, 255, 255];
const GRID: [u8; 3] = [225, 225, 225];
const STEPS: [u8; 3] = [150, 185, 230];
const MEAN: [u8; 3] = [25, 80, 170];
const VALIDATION: [u8; 3] = [210, 90, 20];

/// Steps and what they have.
type Points = Vec<(f64, f64)>;

/// Writes `loss.png`: the loss of each step, its running mean over a twentieth of the steps, and the validation loss in orange; lines of the grid are whole numbers
/// (of nats).
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
        let [_, [low, high]] = ranges;
        for loss in (low.ceil() as i64..=high.floor() as i64).take(HEIGHT) {
            let [_, y] = picture.place((ranges[0][0], loss as f64));
            (MARGIN..WIDTH - MARGIN).for_each(|x| picture.point([x, y as usize], GRID));
        }
        picture
    }

    /// Where a point lies, from the upper left.
    fn place(&self, (step, loss): (f64, f64)) -> [f64; 2] {
        let along = |x: f64, [low, high]: [f64; 2], extent: usize| (x - low) / (high - low).max(1e-9) * (extent - 2 * MARGIN - 1) as f64;
        let [steps, losses] = self.ranges;
        [MARGIN as f64 + along(step, steps, WIDTH), (HEIGHT - MARGIN - 1) as f64 - along(loss, losses, HEIGHT)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_fall_from_the_upper_left_to_the_lower_right() {
        let points = vec![(1.0, 4.0), (2.0, 2.5), (3.0, 2.0)];
        let mut picture = Picture::new(points.iter());
        picture.draw(&points, MEAN);
        let color = |x: usize, y: usize| &picture.bytes[3 * (y * WIDTH + x)..][..3];
        assert_eq!((color(MARGIN, MARGIN), color(WIDTH - MARGIN - 1, HEIGHT - MARGIN - 1)), (&MEAN[..], &MEAN[..]));
        // The grid's line of 3, which the losses cross further to the left; paper beside the margin.
        assert_eq!((color(WIDTH - MARGIN - 1, HEIGHT / 2 - 1), color(0, 0)), (&GRID[..], &PAPER[..]));
        assert_eq!(running_mean(&points), points);
    }
}
