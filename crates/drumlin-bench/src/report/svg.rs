//! Plots as inline SVG: lines, stacked areas, bars. There is no script; hovering shows a title.
//!
//! Sizes are in user units of a fixed view box, so a page can scale the plots. Colours are CSS variables of the page.
//! All numbers have a fixed number of digits, so the same data gives the same bytes.

use std::fmt::Write;

/// Size and margins of the plot area in the view box.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 28.0;
/// Number of colours that the page defines; further series are dashed.
const COLOURS: usize = 8;
/// Maximum number of points in a line; more would not be visible.
const POINTS_MOST: usize = 600;

/// A line of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the series.
    pub name: String,
    /// Points as (x, y).
    pub points: Vec<(f64, f64)>,
}

/// A named interval of the horizontal axis.
#[derive(Clone, Debug)]
pub struct Band {
    /// Name of the interval.
    pub name: String,
    /// Start of the interval.
    pub from: f64,
    /// End of the interval.
    pub to: f64,
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a number with a decimal unit prefix: 1.5 k, 20 M.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = if scaled.abs() >= 100.0 || scaled.fract() == 0.0 { 0 } else { 2 };
    format!("{scaled:.digits$}{unit}")
}

/// Axes of a plot.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
    log: bool,
}

impl Axes {
    fn across(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0).max(1e-12) * (WIDTH - LEFT)
    }

    fn up(&self, y: f64) -> f64 {
        let place = match self.log {
            true => (y.max(self.y.0) / self.y.0).ln() / (self.y.1 / self.y.0).ln().max(1e-12),
            false => (y - self.y.0) / (self.y.1 - self.y.0).max(1e-12),
        };
        TOP + (1.0 - place) * (HEIGHT - TOP - BOTTOM)
    }

    /// Returns the values of the grid lines and labels.
    fn marks(&self) -> Vec<f64> {
        if self.log {
            let first = self.y.0.log10().ceil() as i32;
            return (first..=self.y.1.log10().floor() as i32).map(|power| 10f64.powi(power)).collect();
        }
        (0..=4).map(|part| self.y.0 + (self.y.1 - self.y.0) * f64::from(part) / 4.0).collect()
    }

    fn draw(&self, unit: &str, out: &mut String) {
        for mark in self.marks() {
            let y = self.up(mark);
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT:.0}\" x2=\"{WIDTH:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"label\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                escape(&short(mark)),
            );
        }
        let _ = writeln!(out, "<text class=\"label\" x=\"{LEFT:.0}\" y=\"10\">{}</text>", escape(unit));
    }

    /// Draws numbers along the horizontal axis; used if there are no bands to name its intervals.
    fn draw_places(&self, out: &mut String) {
        for (quarter, anchor) in [(0, "start"), (1, "middle"), (2, "middle"), (3, "middle"), (4, "end")] {
            let place = self.x.0 + (self.x.1 - self.x.0) * f64::from(quarter) / 4.0;
            let _ = writeln!(
                out,
                "<text class=\"label\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
                self.across(place),
                HEIGHT - 14.0,
                escape(&short(place)),
            );
        }
    }
}

fn open(title: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" aria-label=\"{}\"><title>{}</title>\n",
        escape(title),
        escape(title),
    )
}

fn bands(bands: &[Band], axes: &Axes, out: &mut String) {
    for (number, band) in bands.iter().enumerate() {
        let (from, to) = (axes.across(band.from), axes.across(band.to));
        let _ = writeln!(
            out,
            "<rect class=\"band{}\" x=\"{from:.1}\" y=\"{TOP:.0}\" width=\"{:.1}\" \
             height=\"{:.0}\"><title>{}</title></rect>\
             <text class=\"label\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            number % 2,
            (to - from).max(0.0),
            HEIGHT - TOP - BOTTOM,
            escape(&band.name),
            (from + to) / 2.0,
            HEIGHT - 14.0,
            escape(&band.name),
        );
    }
}

fn legend(names: &[&str]) -> String {
    let key = |(number, name): (usize, &&str)| {
        let dashed = if number < COLOURS { "" } else { " dashed" };
        format!("<span class=\"key c{}{dashed}\">{}</span>", number % COLOURS, escape(name))
    };
    format!("<p class=\"legend\">{}</p>\n", names.iter().enumerate().map(key).collect::<String>())
}

/// Returns every `n`th point, so that at most [`POINTS_MOST`] remain.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS_MOST).max(1);
    points.iter().copied().step_by(step).collect()
}

/// Returns the interval from 0 to the largest of `values`; never empty.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let most = values.fold(0.0, f64::max);
    (0.0, if most > 0.0 { most } else { 1.0 })
}

/// Returns the interval from 0 to a round number that is at least the largest of `values`. A quarter of it is round
/// too.
fn round_span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (_, most) = span(values);
    let unit = 10f64.powf(most.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    let top = steps.iter().map(|step| step * unit).find(|top| *top >= most);
    (0.0, top.unwrap_or(most))
}

/// Returns a line plot over `x`, with bands behind the lines and marks at the given positions.
pub fn lines(title: &str, unit: &str, series: &[Series], behind: &[Band], marks: &[(f64, String)]) -> String {
    let points = || series.iter().flat_map(|series| series.points.iter());
    let axes = Axes { x: span(points().map(|p| p.0)), y: round_span(points().map(|p| p.1)), log: false };
    let mut out = open(title);
    bands(behind, &axes, &mut out);
    if behind.is_empty() {
        axes.draw_places(&mut out);
    }
    axes.draw(unit, &mut out);
    for (number, series) in series.iter().enumerate() {
        let path: Vec<String> = thin(&series.points)
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", axes.across(*x), axes.up(*y)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline class=\"line s{}{}\" points=\"{}\"><title>{}</title></polyline>",
            number % COLOURS,
            if number < COLOURS { "" } else { " dashed" },
            path.join(" "),
            escape(&series.name),
        );
    }
    for (x, text) in marks {
        let x = axes.across(*x);
        let _ = writeln!(
            out,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP:.0}\" y2=\"{:.0}\"><title>{}</title></line>",
            TOP + 8.0,
            escape(text),
        );
    }
    out += "</svg>\n";
    out + &legend(&series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>())
}

/// Returns a plot of stacked series, which share their x values.
pub fn stacked(title: &str, unit: &str, series: &[Series], behind: &[Band]) -> String {
    let count = series.iter().map(|series| series.points.len()).min().unwrap_or(0);
    let mut sums = vec![0.0; count];
    let mut layers = Vec::new();
    for series in series {
        let below = sums.clone();
        for (sum, (_, value)) in sums.iter_mut().zip(&series.points) {
            *sum += value;
        }
        layers.push((series, below, sums.clone()));
    }
    let places = series.iter().flat_map(|series| series.points.iter().map(|p| p.0));
    let axes = Axes { x: span(places), y: round_span(sums.iter().copied()), log: false };
    let mut out = open(title);
    bands(behind, &axes, &mut out);
    if behind.is_empty() {
        axes.draw_places(&mut out);
    }
    axes.draw(unit, &mut out);
    for (number, (series, below, above)) in layers.iter().enumerate() {
        let at = |values: &[f64]| -> Vec<(f64, f64)> {
            let points: Vec<_> = series.points.iter().zip(values).map(|((x, _), y)| (*x, *y)).collect();
            thin(&points)
        };
        let edge = at(above).into_iter().chain(at(below).into_iter().rev());
        let path: Vec<String> =
            edge.map(|(x, y)| format!("{:.1},{:.1}", axes.across(x), axes.up(y))).collect();
        let _ = writeln!(
            out,
            "<polygon class=\"area s{}\" points=\"{}\"><title>{}</title></polygon>",
            number % COLOURS,
            path.join(" "),
            escape(&series.name),
        );
    }
    out += "</svg>\n";
    out + &legend(&series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>())
}

/// Returns a stacked bar for each row; `parts` names the parts of a bar.
pub fn bars(title: &str, unit: &str, parts: &[&str], rows: &[(String, Vec<f64>)]) -> String {
    let axes = Axes {
        x: (0.0, rows.len() as f64),
        y: round_span(rows.iter().map(|(_, v)| v.iter().sum())),
        log: false,
    };
    let mut out = open(title);
    axes.draw(unit, &mut out);
    for (row, (name, values)) in rows.iter().enumerate() {
        let mut below = 0.0;
        for (part, value) in values.iter().enumerate() {
            let (top, bottom) = (axes.up(below + value), axes.up(below));
            let _ = writeln!(
                out,
                "<rect class=\"area s{}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                    height=\"{:.1}\"><title>{}, {}: {}</title></rect>",
                part % COLOURS,
                axes.across(row as f64 + 0.1),
                axes.across(0.8) - axes.across(0.0),
                bottom - top,
                escape(name),
                escape(parts.get(part).unwrap_or(&"")),
                escape(&short(*value)),
            );
            below += value;
        }
        // Names of two words are split into two lines if there are many bars.
        let split = if rows.len() > 6 { name.rsplit_once(' ') } else { None };
        let words = match split {
            Some((first, second)) => vec![first, second],
            None => vec![name.as_str()],
        };
        for (line, word) in words.iter().enumerate().filter(|_| rows.len() <= 16) {
            let _ = writeln!(
                out,
                "<text class=\"label\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                axes.across(row as f64 + 0.5),
                HEIGHT - 16.0 + 12.0 * line as f64,
                escape(word),
            );
        }
    }
    out += "</svg>\n";
    out + &legend(parts)
}

/// Returns a plot of points on a logarithmic axis, with one column per row. The points of a column are the
/// `quantiles`.
pub fn columns_log(title: &str, unit: &str, quantiles: &[&str], rows: &[(String, Vec<f64>)]) -> String {
    let values = || rows.iter().flat_map(|(_, values)| values.iter().copied()).filter(|value| *value > 0.0);
    let least = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let axes = Axes { x: (0.0, rows.len() as f64), y: (least / 1.5, most * 1.5), log: true };
    let mut out = open(title);
    axes.draw(unit, &mut out);
    for (row, (name, values)) in rows.iter().enumerate() {
        let x = axes.across(row as f64 + 0.5);
        for (number, value) in values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let _ = writeln!(
                out,
                "<circle class=\"area s{}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}, {}: {} us</title></circle>",
                number % COLOURS,
                axes.up(*value),
                escape(name),
                escape(quantiles.get(number).unwrap_or(&"")),
                escape(&short(*value)),
            );
        }
        if rows.len() <= 12 {
            let _ = writeln!(
                out,
                "<text class=\"label\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - 14.0,
                escape(name),
            );
        }
    }
    out += "</svg>\n";
    out + &legend(quantiles)
}

/// Returns a whisker for a ratio: minimum, median and maximum around 1, on a logarithmic scale from 1/4 to 8.
pub fn whisker(median: f64, min: f64, max: f64) -> String {
    let at = |ratio: f64| 10.0 + ((ratio.clamp(0.25, 8.0) / 0.25).ln() / 32f64.ln()) * 180.0;
    format!(
        "<svg class=\"whisker\" viewBox=\"0 0 200 16\" role=\"img\" aria-label=\"{median:.2}, from {min:.2} to \
         {max:.2}\">\
         <title>{median:.2}, from {min:.2} to {max:.2}</title>\
         <line class=\"grid\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"0\" y2=\"16\"/>\
         <line class=\"line s0\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"8\" y2=\"8\"/>\
         <circle class=\"area s0\" cx=\"{:.1}\" cy=\"8\" r=\"4\"/></svg>",
        at(min),
        at(max),
        at(median),
        one = at(1.0),
    )
}
