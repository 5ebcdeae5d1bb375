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
.hover rect { fill: transparent } .hover rect:hover { fill: #1f77b433 }
";

/// A page without anything from the network: the summary, the segments by bytes and time, the memory curve of a step before
/// and after (its marks are read by pointing at them), what is resident at the peak, the front if there is one, and the log.
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
    let _ = write!(html, "<h2>Plan</h2>\n{}", segments(summary));
    let curves = memory_curves(&summary.curve_before, &summary.curve_after)?;
    let _ =
        write!(html, "<h2>Memory of a step</h2>\n{curves}\n{}", marks("with the plan", &summary.curve_after));
    let _ = write!(html, "{}", marks("everything retained", &summary.curve_before));
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

/// A strip of the marks of a curve: pointing at one shows its name and bytes.
fn marks(name: &str, marks: &[Mark]) -> String {
    let most = marks.iter().map(|mark| mark.peak).max().unwrap_or(1).max(1) as f64;
    let mut html = format!(
        "<svg class=\"hover\" viewBox=\"0 0 {} 64\" width=\"760\" role=\"img\"><title>{}</title>\
         <text x=\"0\" y=\"10\" font-size=\"10\">{}: point at a bar</text>",
        marks.len().max(1) * 20,
        escaped(name),
        escaped(name)
    );
    for (index, mark) in marks.iter().enumerate() {
        let (x, live, peak) = (index * 20, 44. * mark.live as f64 / most, 44. * mark.peak as f64 / most);
        let _ = write!(
            html,
            "<line x1=\"{x}\" x2=\"{x2}\" y1=\"{y_peak:.1}\" y2=\"{y_peak:.1}\" stroke=\"#d62728\"/>\
             <line x1=\"{x}\" x2=\"{x2}\" y1=\"{y_live:.1}\" y2=\"{y_live:.1}\" stroke=\"#1f77b4\" stroke-width=\"2\"/>\
             <rect x=\"{x}\" y=\"14\" width=\"20\" height=\"50\"><title>{}: {} MB alive, {} MB at most before</title></rect>",
            escaped(&mark.name),
            megabytes(mark.live),
            megabytes(mark.peak),
            x2 = x + 18,
            y_peak = 62. - peak,
            y_live = 62. - live,
        );
    }
    html.push_str("</svg>\n");
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
