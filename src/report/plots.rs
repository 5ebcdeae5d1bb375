//! Plots, as SVG.

use crate::search::{FrontPoint, Mark, Resident};
use crate::{Error, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (760, 360);
const TEXT: u32 = 13;
const BEFORE: RGBColor = RGBColor(150, 150, 150);
const AFTER: RGBColor = RGBColor(31, 119, 180);
/// One for each part of what is resident.
const PARTS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(214, 39, 40),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Runs `draw` on a white area; gives the SVG.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area));
        drawn
            .and_then(|()| Ok(area.present()?))
            .map_err(|e| Error::Candle(candle_core::Error::Msg(e.to_string())))?;
    }
    Ok(text)
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// The front of time and memory: each point is a plan, and none that was searched is better in both.
///
/// # Errors
/// If it cannot be drawn.
pub fn front(points: &[FrontPoint]) -> Result<String> {
    // Axes end somewhere.
    let finite = points.iter().filter(|point| point.seconds.is_finite());
    let at: Vec<(f64, f64)> = finite.map(|point| (megabytes(point.peak), point.seconds * 1e3)).collect();
    let most = |of: &dyn Fn(&(f64, f64)) -> f64| at.iter().map(of).fold(0., f64::max).max(1e-9) * 1.08;
    let (width, height) = (most(&|point| point.0), most(&|point| point.1));
    svg(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption("time and memory of a step, by plan", ("sans-serif", TEXT + 3))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(0f64..width, 0f64..height)?;
        chart
            .configure_mesh()
            .x_desc("peak of a step, MB")
            .y_desc("time of a step, ms (cost table)")
            .label_style(("sans-serif", TEXT))
            .draw()?;
        chart.draw_series(LineSeries::new(at.iter().copied(), AFTER.stroke_width(2)))?;
        chart.draw_series(at.iter().map(|&point| Circle::new(point, 4, AFTER.filled())))?;
        Ok(())
    })
}

/// The memory curves of one step, without a plan and with it. Each mark is drawn with the peak before it.
///
/// # Errors
/// If they cannot be drawn.
pub fn memory_curves(before: &[Mark], after: &[Mark]) -> Result<String> {
    // Both go from the beginning of the step to its end.
    let curve = |marks: &[Mark]| -> Vec<(f64, f64)> {
        let last = marks.len().max(1) as f64;
        let mut points = vec![(0., 0.)];
        for (index, mark) in marks.iter().enumerate() {
            points.push(((index as f64 + 0.5) / last, megabytes(mark.peak)));
            points.push(((index as f64 + 1.) / last, megabytes(mark.live)));
        }
        points
    };
    let (before, after) = (curve(before), curve(after));
    let most = before.iter().chain(&after).map(|point| point.1).fold(1e-9, f64::max) * 1.08;
    svg(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .caption("bytes of one step", ("sans-serif", TEXT + 3))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(0f64..1f64, 0f64..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .x_desc("forward, then backward")
            .y_desc("MB beyond those before the step")
            .label_style(("sans-serif", TEXT))
            .draw()?;
        for (points, color, name) in
            [(before, BEFORE, "everything retained"), (after, AFTER, "with the plan")]
        {
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .border_style(BLACK.mix(0.2))
            .background_style(WHITE.mix(0.8))
            .draw()?;
        Ok(())
    })
}

/// What is resident at the peak, as a bar: weights, gradients, optimizer, inputs, internal states.
///
/// # Errors
/// If it cannot be drawn.
pub fn breakdown(resident: &Resident) -> Result<String> {
    let parts = [
        ("weights", resident.weights),
        ("gradients", resident.gradients),
        ("optimizer", resident.optimizer),
        ("inputs", resident.inputs),
        ("internal states", resident.internal),
    ];
    let total = resident.total().max(1) as f64;
    svg((SIZE.0, 150), |area| {
        let style = ("sans-serif", TEXT).into_text_style(area);
        let title = format!("resident at the peak: {:.1} MB", total / 1e6);
        area.draw_text(&title, &style, (12, 10))?;
        let width = f64::from(SIZE.0 - 24);
        let mut x = 12.;
        for ((index, (name, bytes)), color) in parts.iter().enumerate().zip(PARTS) {
            let next = x + width * *bytes as f64 / total;
            area.draw(&Rectangle::new([(x as i32, 36), (next as i32, 76)], color.filled()))?;
            x = next;
            let left = 12 + (index % 3) as i32 * 240;
            let top = 92 + (index / 3) as i32 * 24;
            area.draw(&Rectangle::new([(left, top), (left + 12, top + 12)], color.filled()))?;
            area.draw_text(&format!("{name} {:.1} MB", megabytes(*bytes)), &style, (left + 18, top))?;
        }
        Ok(())
    })
}
