//! The screen as a picture.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

/// Colours by the classes of the picture, light and dark.
const STYLE: &str = "\
.back,.ink-turned{fill:#fff}.text,.turned{fill:#1b1f24}.live{fill:#1f6feb}.shared{fill:#8250df}\
.pending{fill:#9a6700}.idle{fill:#7d8590}\n\
@media(prefers-color-scheme:dark){.back,.ink-turned{fill:#0d1117}.text,.turned{fill:#c9d1d9}\
.live{fill:#4493f8}.shared{fill:#ab7df8}.pending{fill:#d29922}.idle{fill:#6e7681}}";

pub fn svg(buffer: &Buffer) -> String {
    const CELL: (u16, u16) = (8, 17);
    let (width, height) = (buffer.area.width * CELL.0, buffer.area.height * CELL.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"monospace\" font-size=\"13\">\n\
         <title>memcuda top in a terminal</title>\n\
         <desc>A table of processes and their devices; below it the map of the chosen one's chunks, and its names.</desc>\n\
         <style>{STYLE}</style>\n<rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for y in 0..buffer.area.height {
        let cells: Vec<_> = (0..buffer.area.width).map(|x| &buffer[(x, y)]).collect();
        let mut x = 0;
        for run in cells.chunk_by(|a, b| (a.fg, a.modifier) == (b.fg, b.modifier)) {
            let text: String = run.iter().map(|cell| cell.symbol()).collect();
            let turned = run[0].modifier.contains(Modifier::REVERSED);
            let (left, top, length) = (x * CELL.0, y * CELL.1, run.len() as u16 * CELL.0);
            x += run.len() as u16;
            if turned {
                svg += &format!(
                    "<rect class=\"turned\" x=\"{left}\" y=\"{top}\" width=\"{length}\" height=\"{}\"/>\n",
                    CELL.1
                );
            }
            if text.trim().is_empty() {
                continue;
            }
            let ink = match (turned, run[0].fg) {
                (true, _) => "ink-turned",
                (_, Color::Blue) => "live",
                (_, Color::Magenta) => "shared",
                (_, Color::Yellow) => "pending",
                (_, Color::Gray) => "idle",
                _ => "text",
            };
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            svg += &format!(
                "<text class=\"{ink}\" x=\"{left}\" y=\"{}\" textLength=\"{length}\" xml:space=\"preserve\">{text}</text>\n",
                top + 13
            );
        }
    }
    svg + "</svg>\n"
}
