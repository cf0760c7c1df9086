//! Draws memory over time as one SVG that needs nothing else and is readable on
//! light and on dark: what was live in a trace, by size, or what `before` knows.

use std::fmt::Write;

use memcuda::trace::account::{Account, CLASSES};
use memcuda::units::show_bytes;

use crate::output::plain;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const CHART: f64 = 260.0;
/// Above a chart: its title and its legend.
const ABOVE: f64 = 70.0;
const BELOW: f64 = 45.0;
/// Where a chart's own area ends.
const BOTTOM: f64 = ABOVE + CHART;
/// From the largest to the smallest sizes: which lie at the bottom.
const STYLE: &str = "
  text { font: 13px system-ui, sans-serif; fill: #1a1a1a }
  .title { font-weight: 600; font-size: 15px }
  .axis { stroke: #595959; fill: none }
  .grid { stroke: #d9d9d9 }
  .peak { stroke: #b3261e; stroke-dasharray: 4 3 }
  .c0 { fill: #8ecae6 } .c1 { fill: #4a9fd0 } .c2 { fill: #2a78ab } .c3 { fill: #1c5680 } .c4 { fill: #123a57 }
  .page { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #ececec } .page { fill: #16181c } .grid { stroke: #33373e } .axis { stroke: #a0a4ab } .peak { stroke: #ff8a80 }
    .c0 { fill: #d3ecf8 } .c1 { fill: #a4d4ee } .c2 { fill: #6fb4dc } .c3 { fill: #4392c0 } .c4 { fill: #2b6f99 }
  }
";

/// What is drawn over time, in steps of one length.
pub struct Chart {
    /// Its heading.
    pub title: String,
    /// Names, and bytes at each step. They stand on each other, the first on top.
    pub layers: Vec<(&'static str, Vec<u64>)>,
    /// Which colour the first of them has, and how far apart the others' are.
    pub colours: (usize, usize),
    /// Seconds of a step.
    pub step: f64,
    /// Seconds at the beginning.
    pub begin: f64,
    /// A moment that is marked, in seconds, and what it is.
    pub mark: Option<(f64, &'static str)>,
}

/// One chart a device.
pub fn draw(title: &str, account: &Account) -> String {
    let charts = account.devices.iter().map(|(ordinal, device)| {
        let program = &device.program;
        let line = &program.timeline;
        let of = |class: usize| line.steps.iter().map(move |step| step[class]).collect();
        let peak = show_bytes(program.peak_bytes);
        Chart {
            title: format!("Device {ordinal}: {peak} live at most"),
            layers: (0..CLASSES.len())
                .map(|class| (CLASSES[class].0, of(class)))
                .collect(),
            colours: (0, 1),
            step: line.step_us as f64 / 1e6,
            begin: 0.0,
            mark: Some((program.peak_us as f64 / 1e6, "the peak")),
        }
    });
    page(title, &charts.collect::<Vec<_>>())
}

/// Charts below each other.
pub fn page(title: &str, charts: &[Chart]) -> String {
    let one = ABOVE + CHART + BELOW;
    let height = one * charts.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Device memory over time, {0}\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        escaped(title)
    );
    for (at, chart) in charts.iter().enumerate() {
        let top = one * at as f64;
        let _ = writeln!(svg, "<g transform=\"translate(0 {top})\">");
        chart.draw(&mut svg);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

impl Chart {
    fn draw(&self, svg: &mut String) {
        let scale = Scale::of(self);
        let _ = writeln!(
            svg,
            "<text class=\"title\" x=\"{LEFT}\" y=\"24\">{}</text>",
            escaped(&self.title)
        );
        self.legend(svg);
        scale.grid(svg);
        // The last at the bottom: what is small changes often, on top of it.
        let mut below = vec![0; scale.steps];
        for at in (0..self.layers.len()).rev() {
            self.area(svg, at, &mut below, &scale);
        }
        if let Some((second, what)) = self.mark {
            let at = scale.x(second);
            let _ = writeln!(
                svg,
                "<path class=\"peak\" d=\"M{at:.1} {ABOVE}V{BOTTOM}\"><title>{what}</title></path>"
            );
        }
        scale.axis(svg);
    }

    fn legend(&self, svg: &mut String) {
        for (at, (name, _)) in self.layers.iter().enumerate() {
            let left = LEFT + 150.0 * at as f64;
            let _ = writeln!(
                svg,
                "<rect class=\"c{}\" x=\"{left}\" y=\"38\" width=\"14\" height=\"14\"/>\
                 <text x=\"{}\" y=\"50\">{name}</text>",
                self.colour(at),
                left + 20.0
            );
        }
    }

    fn colour(&self, layer: usize) -> usize {
        self.colours.0 + self.colours.1 * layer
    }

    /// One layer, on what is below it.
    fn area(&self, svg: &mut String, layer: usize, below: &mut [u64], scale: &Scale) {
        let (name, steps) = &self.layers[layer];
        let (mut up, mut back, mut any) = (String::new(), String::new(), false);
        for (at, (below, bytes)) in below.iter_mut().zip(steps).enumerate() {
            any |= *bytes > 0;
            let x = |step: usize| scale.x(self.begin + self.step * step as f64);
            let (left, right, under) = (x(at), x(at + 1), scale.y(*below));
            *below = below.saturating_add(*bytes);
            let _ = write!(up, "L{left:.1} {:.1}H{right:.1}", scale.y(*below));
            back.insert_str(0, &format!("L{right:.1} {under:.1}H{left:.1}"));
        }
        if any {
            let outline = up.replacen('L', "M", 1) + &back + "Z";
            let _ = writeln!(
                svg,
                "<path class=\"c{}\" d=\"{outline}\"><title>{name}</title></path>",
                self.colour(layer)
            );
        }
    }
}

/// Where seconds and bytes of a chart are.
struct Scale {
    steps: usize,
    begin: f64,
    seconds: f64,
    /// Bytes at the top.
    most: u64,
}

impl Scale {
    fn of(chart: &Chart) -> Self {
        let steps = chart.layers.iter().map(|(_, steps)| steps.len()).max();
        let steps = steps.unwrap_or(0);
        let sum = |at: usize| {
            let all = chart.layers.iter().filter_map(|(_, steps)| steps.get(at));
            all.fold(0_u64, |sum, bytes| sum.saturating_add(*bytes))
        };
        Self {
            steps,
            begin: chart.begin,
            seconds: (chart.step * steps as f64).max(1e-6),
            most: (0..steps).map(sum).max().unwrap_or(0).max(1),
        }
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (second - self.begin) / self.seconds
    }

    fn y(&self, bytes: u64) -> f64 {
        ABOVE + CHART * (1.0 - bytes as f64 / self.most as f64)
    }

    /// Lines, and their bytes to the left.
    fn grid(&self, svg: &mut String) {
        for quarter in 0..=4 {
            let bytes = (self.most as f64 * f64::from(quarter) / 4.0) as u64;
            let height = BOTTOM - CHART * f64::from(quarter) / 4.0;
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {height:.1}H{}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                height + 4.0,
                show_bytes(bytes)
            );
        }
    }

    /// The axes, and seconds below.
    fn axis(&self, svg: &mut String) {
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {ABOVE}V{BOTTOM}H{}\"/>",
            WIDTH - RIGHT
        );
        for quarter in 0..=4 {
            let at = self.begin + self.seconds * f64::from(quarter) / 4.0;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{at:.3} s</text>",
                self.x(at),
                BOTTOM + 20.0
            );
        }
    }
}

fn escaped(text: &str) -> String {
    plain(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}
