/* A chart of bytes over time, as SVG: areas on each other, or lines. */
const SVG = "http://www.w3.org/2000/svg";

function svg(name, parent, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

/* The next round number of bytes. */
function round(most) {
  let unit = 1;
  while (most > 1024 * unit) unit *= 1024;
  for (const step of [1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024]) {
    if (step * unit >= most) return step * unit;
  }
  return most;
}

/* series: name, color (of the style), times, values. */
function chart(into, series, stacked, what) {
  const width = Math.max(280, into.clientWidth), height = innerWidth <= 640 ? 180 : 220;
  const left = 66, right = 8, top = 8, bottom = 22;
  into.textContent = "";
  const drawn = svg("svg", into, { viewBox: "0 0 " + width + " " + height, role: "img", preserveAspectRatio: "none" });
  const all = series.filter(s => s.times.length);
  const newest = Math.max(...all.map(s => s.times[s.times.length - 1]), 1);
  const oldest = Math.min(...all.map(s => s.times[0]), newest - 60000);
  const sums = all.length && stacked ? all[0].times.map((_, at) => all.reduce((sum, s) => sum + s.values[at], 0)) : [];
  const peak = Math.max(1, ...sums, ...(stacked ? [] : all.map(s => s.values.reduce((a, b) => Math.max(a, b), 0))));
  const most = round(peak);
  const x = time => left + (width - left - right) * (time - oldest) / (newest - oldest);
  const y = value => top + (height - top - bottom) * (1 - value / most);
  for (let at = 0; at <= 4; at++) {
    const value = most * at / 4;
    svg("line", drawn, { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) });
    svg("text", drawn, { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, bytes(value));
  }
  svg("text", drawn, { x: left, y: height - 6 }, Math.round((newest - oldest) / 1000) + " s ago");
  svg("text", drawn, { x: width - right, y: height - 6, "text-anchor": "end" }, "now");
  let below = all.length ? all[0].times.map(() => 0) : [];
  for (const s of all) {
    const tops = stacked ? s.values.map((value, at) => value + below[at]) : s.values;
    const line = s.times.map((time, at) => x(time).toFixed(1) + " " + y(tops[at]).toFixed(1));
    if (stacked) {
      const back = s.times.map((time, at) => x(time).toFixed(1) + " " + y(below[at]).toFixed(1)).reverse();
      svg("path", drawn, { d: "M" + line.concat(back).join("L") + "Z", fill: "var(--" + s.color + ")" });
      below = tops;
    } else {
      svg("path", drawn, { d: "M" + line.join("L"), fill: "none", stroke: "var(--" + s.color + ")", "stroke-width": 2 });
    }
  }
  const last = s => s.values[s.values.length - 1] || 0;
  const told = all.map(s => s.name + " " + bytes(last(s))).join(", ");
  drawn.setAttribute("aria-label", what + ": " + (told || "nothing yet") + "; at most " + bytes(all.length ? peak : 0) + " in this time");
  const key = make("ul", into, null, { class: "key" });
  for (const s of all) {
    const item = make("li", key);
    make("i", item).style.background = "var(--" + s.color + ")";
    item.append(s.name + " " + bytes(last(s)));
  }
}

/* Samples of pools, as they are when new ones are added to old ones. */
function Samples() {
  const columns = ["time_ms", "live", "pending", "idle", "physical"];
  let known = new Map();
  return {
    async update(pools, keep) {
      const newer = new Map();
      const old = pools.filter(pool => known.has(pool)), fresh = pools.filter(pool => !known.has(pool));
      const newest = old.map(pool => known.get(pool).time_ms).map(times => times[times.length - 1] || 0);
      const asks = [];
      if (old.length) asks.push(ask("/api/samples?after_ms=" + Math.min(...newest) + "&pools=" + old.join(",")));
      if (fresh.length) asks.push(ask("/api/samples?pools=" + fresh.join(",")));
      for (const answer of await Promise.all(asks)) for (const got of answer) {
        const had = known.get(got.pool), last = had ? had.time_ms[had.time_ms.length - 1] || 0 : 0;
        const from = got.time_ms.findIndex(time => time > last);
        const sum = { pool: got.pool };
        for (const column of columns) {
          const more = from < 0 ? [] : got[column].slice(from);
          sum[column] = (had ? had[column].concat(more) : more).slice(-keep);
        }
        newer.set(got.pool, sum);
      }
      known = newer;
    },
    of: pool => known.get(pool),
  };
}
