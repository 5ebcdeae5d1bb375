//! One page for all that a search found.

use super::plots::{breakdown, front, memory_curves};
use crate::search::{FrontPoint, Mark, Summary};
use crate::Result;
use std::fmt::Write as _;

/// What the page looks like.
const STYLE: &str = "
body { font: 15px/1.45 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } td, th { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid #ddd }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
tr:hover td { background: #f2f7fb } .bar { background: #1f77b4; height: .7rem; display: inline-block; min-width: 1px }
.bar.held { background: #d62728 } svg { max-width: 100%; height: auto } pre { background: #f6f6f6; padding: .8rem; overflow-x: auto }
h3 { font-size: .95rem; font-weight: normal; margin: 1rem 0 .2rem } figure { margin: 0 }
.mark:hover { fill: #0003 } .mark { fill: transparent }
";

/// A page without anything from the network: the summary, the segments by bytes and time and the tree that they are in, the
/// memory curve of a step before and after (its marks are read by pointing at them), what is resident at the peak, the
/// front if there is one, and the log.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn page(title: &str, summary: &Summary, points: &[FrontPoint]) -> Result<String> {
    let mut html = String::new();
    let title = escaped(title);
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\
         <body><h1>{title}</h1>\n<pre>{}</pre>\n",
        escaped(&summary.to_string())
    );
    let tree = escaped(&summary.structure);
    let _ = write!(html, "<h2>Plan</h2>\n{}<pre>{tree}</pre>\n", segments(summary));
    let curves = memory_curves(&summary.curve_before, &summary.curve_after)?;
    let both = summary.curve_before.iter().chain(&summary.curve_after);
    let most = both.map(|mark| mark.peak.max(mark.live)).max().unwrap_or_default();
    let _ = write!(html, "<h2>Memory of a step</h2>\n{curves}\n");
    html.push_str(&marks("with the plan", &summary.curve_after, most));
    html.push_str(&marks("everything retained, predicted", &summary.curve_before, most));
    let _ = write!(html, "<h2>At the peak</h2>\n{}\n", breakdown(&summary.resident)?);
    if !points.is_empty() {
        let _ = write!(html, "<h2>Time and memory</h2>\n{}\n{}", front(points)?, plans(points));
    }
    if !summary.log.is_empty() {
        let _ = write!(html, "<h2>Search</h2>\n<pre>{}</pre>\n", escaped(&summary.log.join("\n")));
    }
    html.push_str("</body></html>\n");
    Ok(html)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn megabytes(bytes: usize) -> String {
    format!("{:.2}", bytes as f64 / 1e6)
}

/// A row for each segment.
fn segments(summary: &Summary) -> String {
    let mut html = String::from(
        "<table><tr><th>segment</th><th>kept as</th><th>input</th><th class=\"number\">held, MB</th>\
         <th class=\"number\">retained it would be, MB</th><th class=\"number\">computed again, ms</th><th></th></tr>\n",
    );
    let most = summary.segments.iter().map(|segment| segment.retained).max().unwrap_or(1).max(1) as f64;
    for segment in &summary.segments {
        let width = |bytes: usize| 8. * bytes as f64 / most;
        let _ = writeln!(
            html,
            "<tr title=\"{path}: {held} bytes kept instead of {retained}\"><td>{path}</td><td>{}</td><td>{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{:.1}</td>\
             <td><span class=\"bar held\" style=\"width:{:.2}rem\"></span><br><span class=\"bar\" style=\"width:{:.2}rem\"></span></td></tr>",
            escaped(&segment.keep),
            escaped(&segment.compressor),
            megabytes(segment.held),
            megabytes(segment.retained),
            segment.recompute_ms,
            width(segment.held),
            width(segment.retained),
            path = escaped(&segment.path),
            held = segment.held,
            retained = segment.retained,
        );
    }
    html.push_str("</table>\n");
    html
}

/// Width and height of a strip of marks, in pixels.
const STRIP: (f64, f64) = (760., 90.);

/// A strip of the marks of a curve, a bar each: what is alive, and below it lighter the peak before. Pointing at one shows
/// its name and bytes; strips with the same `most` have the same scale.
fn marks(name: &str, marks: &[Mark], most: usize) -> String {
    let (width, height) = (STRIP.0 / marks.len().max(1) as f64, STRIP.1);
    let mut html = format!(
        "<figure><h3>{}: point at a bar</h3><svg viewBox=\"0 0 {} {height}\" width=\"{}\" role=\"img\">",
        escaped(name),
        STRIP.0,
        STRIP.0,
    );
    for (index, mark) in marks.iter().enumerate() {
        let x = index as f64 * width;
        let tall = |bytes: usize| (height - 2.) * bytes as f64 / most.max(1) as f64;
        let bar = (width - 1.5).max(width / 2.);
        for (bytes, fill) in [(mark.peak, "#9ecae1"), (mark.live, "#1f77b4")] {
            let tall = tall(bytes);
            let y = height - tall;
            let _ = write!(
                html,
                "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{bar:.2}\" height=\"{tall:.2}\" fill=\"{fill}\"/>"
            );
        }
        let _ = write!(
            html,
            "<rect class=\"mark\" x=\"{x:.2}\" y=\"0\" width=\"{width:.2}\" height=\"{height}\"><title>{}: {} MB alive, {} MB at \
             most before</title></rect>",
            escaped(&mark.name),
            megabytes(mark.live),
            megabytes(mark.peak),
        );
    }
    html.push_str("</svg></figure>\n");
    html
}

/// A row for each plan of the front.
fn plans(points: &[FrontPoint]) -> String {
    let mut html = String::from(
        "<table><tr><th class=\"number\">peak, MB</th><th class=\"number\">ms (cost table)</th><th>segments</th></tr>\n",
    );
    for point in points {
        let plan = point.plan.to_string();
        let _ = writeln!(
            html,
            "<tr title=\"{}\"><td class=\"number\">{}</td><td class=\"number\">{:.1}</td><td>{}</td></tr>",
            escaped(&plan),
            megabytes(point.peak),
            point.seconds * 1e3,
            point.plan.len(),
        );
    }
    html.push_str("</table>\n");
    html
}
