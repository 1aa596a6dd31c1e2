//! Draws recall over budget.

use std::fmt::Write;

use super::{RetentionReport, percent};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;
/// The distance of the first and the last budget from the ends of the axis.
const INSET: f64 = 24.0;

/// The colours and dashes of the lines, distinguishable in black and white too.
const LINES: [(&str, &str); 6] = [
    ("#0072b2", ""),
    ("#d55e00", "6 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "8 3 2 3"),
    ("#b58900", "4 4"),
    ("#56b4e9", "1 3"),
];

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#222}.h{font-weight:600}\
.g{stroke:#ddd}.a{stroke:#888}.b{fill:#fff}.s{fill:none;stroke-width:2.5}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#333}.a{stroke:#888}.b{fill:#161616}}";

/// Returns the report as an SVG document, with the budgets on the horizontal axis and a line for each strategy.
pub fn recall_svg(report: &RetentionReport) -> String {
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Recall of needed values over the budget\">\n<style>{STYLE}</style>\n\
         <rect class=\"b\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
         <text class=\"h\" x=\"{LEFT}\" y=\"24\">Recall ({})</text>\n",
        report.head()
    );
    axes(&mut svg, &report.budgets());
    lines(&mut svg, report);
    svg.push_str("</svg>\n");
    svg
}

fn x_of(at: usize, count: usize) -> f64 {
    let (first, span) = (LEFT + INSET, WIDTH - LEFT - RIGHT - 2.0 * INSET);
    match count {
        0 | 1 => first + span / 2.0,
        _ => first + span * at as f64 / (count - 1) as f64,
    }
}

fn y_of(recall: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * recall.clamp(0.0, 1.0)
}

fn axes(svg: &mut String, budgets: &[f64]) {
    let right = WIDTH - RIGHT;
    for step in 0..=4 {
        let recall = f64::from(step) / 4.0;
        let y = y_of(recall);
        let class = if step == 0 { "a" } else { "g" };
        let _ = writeln!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            percent(recall)
        );
    }
    for (at, budget) in budgets.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x_of(at, budgets.len()),
            HEIGHT - BOTTOM + 20.0,
            percent(*budget)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">budget, as a share of the tokens \
         compacted</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 10.0
    );
}

fn lines(svg: &mut String, report: &RetentionReport) {
    let budgets = report.budgets();
    for (at, name) in report.strategies().into_iter().enumerate() {
        let (colour, dashes) = LINES[at % LINES.len()];
        let points: Vec<(f64, f64)> = budgets
            .iter()
            .enumerate()
            .filter_map(|(at, budget)| {
                Some((x_of(at, budgets.len()), y_of(report.recall(name, *budget)?)))
            })
            .collect();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"s\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" \
             points=\"{}\"/>",
            path.join(" ")
        );
        // Points at the same position get decreasing sizes, so that they show as rings.
        let radius = (7.0 - 1.25 * at as f64).max(2.5);
        for (x, y) in &points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"
            );
        }
        legend(svg, at, name, colour, dashes);
    }
}

/// Writes a name in a column of its own, since lines may meet at their ends.
fn legend(svg: &mut String, at: usize, name: &str, colour: &str, dashes: &str) {
    let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 14.0 + 22.0 * at as f64);
    let _ = writeln!(
        svg,
        "<line class=\"s\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" x1=\"{x:.1}\" \
         y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        x + 26.0,
        x + 34.0,
        y + 4.0,
        escaped(name)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
