//! Draws what was live over time, by size, as one SVG that needs nothing else and
//! is readable on light and on dark.

use std::fmt::Write;

use memcuda::trace::account::{Account, CLASSES, Device};
use memcuda::units::show_bytes;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const CHART: f64 = 260.0;
/// Above a chart: its title and its legend.
const ABOVE: f64 = 70.0;
const BELOW: f64 = 45.0;
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

/// One chart a device.
pub fn draw(title: &str, account: &Account) -> String {
    let one = ABOVE + CHART + BELOW;
    let height = one * account.devices.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Device memory over time, {0}\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        escaped(title)
    );
    for (at, (ordinal, device)) in account.devices.iter().enumerate() {
        let top = one * at as f64;
        let _ = writeln!(svg, "<g transform=\"translate(0 {top})\">");
        chart(&mut svg, *ordinal, device);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

fn chart(svg: &mut String, ordinal: u32, device: &Device) {
    let program = &device.program;
    let line = &program.timeline;
    let seconds = line.step_us as f64 * line.steps.len() as f64 / 1e6;
    let most = program.peak_bytes.max(1) as f64;
    let wide = WIDTH - LEFT - RIGHT;
    let x = |seconds_in: f64| LEFT + wide * seconds_in / seconds.max(1e-6);
    let y = |bytes: f64| ABOVE + CHART * (1.0 - bytes / most);
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"{LEFT}\" y=\"24\">Device {ordinal}: {} live at most</text>",
        show_bytes(program.peak_bytes)
    );
    for (at, (name, _)) in CLASSES.iter().enumerate() {
        let left = LEFT + 150.0 * at as f64;
        let _ = writeln!(
            svg,
            "<rect class=\"c{at}\" x=\"{left}\" y=\"38\" width=\"14\" height=\"14\"/>\
             <text x=\"{}\" y=\"50\">{name}</text>",
            left + 20.0
        );
    }
    for quarter in 0..=4 {
        let bytes = most * f64::from(quarter) / 4.0;
        let height = y(bytes);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {height:.1}H{}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            height + 4.0,
            show_bytes(bytes as u64)
        );
    }
    // The largest at the bottom: what is small changes often, on top of it.
    let mut below = vec![0.0; line.steps.len()];
    for class in (0..CLASSES.len()).rev() {
        area(
            svg,
            class,
            &mut below,
            line.steps.iter().map(|s| s[class] as f64),
            (&x, &y),
            line.step_us,
        );
    }
    let peak = x(program.peak_us as f64 / 1e6);
    let _ = writeln!(
        svg,
        "<path class=\"peak\" d=\"M{peak:.1} {ABOVE}V{}\"><title>the peak</title></path>\
         <path class=\"axis\" d=\"M{LEFT} {ABOVE}V{1}H{2}\"/>",
        ABOVE + CHART,
        ABOVE + CHART,
        WIDTH - RIGHT
    );
    for quarter in 0..=4 {
        let at = seconds * f64::from(quarter) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{at:.3} s</text>",
            x(at),
            ABOVE + CHART + 20.0
        );
    }
}

/// What is live of one size, on top of what is larger.
fn area(
    svg: &mut String,
    class: usize,
    below: &mut [f64],
    live: impl Iterator<Item = f64>,
    (x, y): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
    step_us: u64,
) {
    let step = step_us as f64 / 1e6;
    let (mut up, mut back, mut any) = (String::new(), String::new(), false);
    for (at, (below, live)) in below.iter_mut().zip(live).enumerate() {
        any |= live > 0.0;
        let (left, right) = (x(step * at as f64), x(step * (at + 1) as f64));
        let over = *below + live;
        let _ = write!(up, "L{left:.1} {:.1}H{right:.1}", y(over));
        back.insert_str(0, &format!("L{right:.1} {0:.1}H{left:.1}", y(*below)));
        *below = over;
    }
    if any {
        let outline = up.replacen('L', "M", 1) + &back + "Z";
        let name = CLASSES[class].0;
        let _ = writeln!(
            svg,
            "<path class=\"c{class}\" d=\"{outline}\"><title>{name}</title></path>"
        );
    }
}

fn escaped(text: &str) -> String {
    let fit = |c: char| if c.is_control() { '?' } else { c };
    let text: String = text.chars().map(fit).collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}
