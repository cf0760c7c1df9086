/* The tables of processes and of names, and the list of events. */
const ROWS = 20, NAMES = 100;

/* heading, what a row is sorted by, text of the cell */
const COLUMNS = [
  ["process", p => p.command + " " + p.pid, p => p.command + " " + p.pid],
  ["device", p => p.ordinal, p => String(p.ordinal)],
  ["live", p => p.live_bytes, p => bytes(p.live_bytes)],
  ["pending", p => p.pending_bytes, p => bytes(p.pending_bytes)],
  ["idle", p => p.idle_bytes, p => bytes(p.idle_bytes)],
  ["shared", p => p.shared_bytes, p => bytes(p.shared_bytes)],
  ["physical", p => p.physical_bytes, p => bytes(p.physical_bytes)],
  ["efficiency", p => p.live_bytes / (p.physical_bytes - p.shared_bytes || 1), p => share(p.live_bytes, p.physical_bytes - p.shared_bytes)],
  ["requests/s", p => p.requests_rate || 0, p => rate(p.requests_rate)],
  ["hits", p => typeof p.hit_share === "number" ? p.hit_share : -1, p => share(p.hit_share, 1)],
  ["stitches/s", p => p.stitches_rate || 0, p => rate(p.stitches_rate)],
  ["driver time", p => p.driver_time_rate || 0, p => p.driver_time_rate === undefined ? "-" : (100 * p.driver_time_rate).toFixed(1) + " %"],
];

function Pools(choose) {
  const table = by("pools-table"), body = table.tBodies[0], head = table.tHead.rows[0];
  let order = 6, down = true, from = 0, all = [], chosen = null;
  COLUMNS.forEach(([name], at) => {
    const heading = make("th", head, null, { scope: "col", class: at === 0 ? "left" : "" });
    make("button", heading, name, { type: "button" }).addEventListener("click", () => {
      down = order === at ? !down : at > 1;
      order = at;
      draw();
    });
  });
  by("pools-filter").addEventListener("input", () => { from = 0; draw(); });
  by("pools-back").addEventListener("click", () => { from -= ROWS; draw(); });
  by("pools-on").addEventListener("click", () => { from += ROWS; draw(); });

  function draw() {
    [...head.children].forEach((heading, at) => heading.setAttribute("aria-sort", at !== order ? "none" : down ? "descending" : "ascending"));
    const filter = by("pools-filter").value.toLowerCase(), value = COLUMNS[order][1];
    const rows = all.filter(pool => (pool.command + " " + pool.pid).toLowerCase().includes(filter));
    const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
    rows.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)) || a.pid - b.pid || a.ordinal - b.ordinal);
    from = Math.max(0, Math.min(from, Math.floor(Math.max(0, rows.length - 1) / ROWS) * ROWS));
    fill(body, rows.slice(from, from + ROWS), pool => pool.pool, (row, pool) => {
      row.className = pool.pool === chosen ? "chosen" : "";
      if (!row.firstChild) {
        const button = make("button", make("td", row, null, { class: "left" }), "", { type: "button" });
        button.addEventListener("click", () => choose(pool.pool, true));
      }
      const button = row.firstChild.firstChild;
      button.textContent = COLUMNS[0][2](pool);
      button.setAttribute("aria-pressed", String(pool.pool === chosen));
      COLUMNS.slice(1).forEach(([, , text], at) => cell(row, at + 1, text(pool)));
    });
    where("pools", from, Math.min(rows.length, from + ROWS), rows.length, "process and device", "processes and devices");
  }
  return { draw, take(pools, now) { all = pools; chosen = now; draw(); } };
}

function where(table, from, to, total, one, more) {
  by(table + "-where").textContent = total === 0 ? "none" : total === 1 ? "1 " + one : (from + 1) + " to " + to + " of " + total.toLocaleString("en") + " " + more;
  by(table + "-back").disabled = from === 0;
  by(table + "-on").disabled = to >= total;
}

function Names() {
  const table = by("names-table"), head = table.tHead.rows[0];
  let from = 0;
  for (const [name, left] of [["name", 1], ["size"], ["elements", 1], ["device"], ["state", 1], ["held by", 1], ["age"]]) make("th", head, name, { scope: "col", class: left ? "left" : "" });
  async function look() {
    const query = "from=" + from + "&count=" + NAMES + "&sort=" + by("names-sort").value + "&filter=" + encodeURIComponent(by("names-filter").value);
    const page = await ask("/api/names?" + query);
    from = page.from;
    by("names-facts").textContent = page.nobody || many(page.total, "name") + ", " + bytes(page.mapped_bytes);
    fill(table.tBodies[0], page.names, name => name.generation, (row, name) => {
      const held = name.holders.map(holder => holder.command + " " + holder.pid);
      cell(row, 0, name.name || "(no name)", "left long");
      cell(row, 1, bytes(name.requested_bytes));
      cell(row, 2, (name.dtype || "-") + (name.shape && name.shape.length ? " " + name.shape.join("x") : ""), "left");
      cell(row, 3, String(name.device));
      cell(row, 4, name.state + (name.version ? ", version " + name.version : ""), "left");
      cell(row, 5, held.length > 3 ? held.slice(0, 3).join(", ") + " and " + (held.length - 3) + " more" : held.join(", ") || "nobody", "left");
      cell(row, 6, age(name.age_s));
    });
    where("names", from, from + page.names.length, page.total, "name", "names");
  }
  const now = again(2000, look);
  by("names-filter").addEventListener("input", () => { from = 0; now(); });
  by("names-sort").addEventListener("change", now);
  by("names-back").addEventListener("click", () => { from = Math.max(0, from - NAMES); now(); });
  by("names-on").addEventListener("click", () => { from += NAMES; now(); });
}

const age = s => s < 60 ? s + " s" : s < 3600 ? Math.floor(s / 60) + " min" : s < 86400 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";

function Events() {
  let changes = -1;
  again(1000, async () => {
    const got = await ask("/api/events?changes=" + changes);
    changes = got.changes;
    if (!got.events) return;
    const list = by("events");
    list.textContent = "";
    for (const event of got.events) {
      const item = make("li", list);
      make("time", item, clock(event.time_ms), { datetime: new Date(event.time_ms).toISOString() });
      const bad = event.kind === "out of memory";
      make("span", item, (bad ? "Out of memory: " : "") + event.text + (event.kind.includes("name") ? " (" + event.kind + ")" : ""), bad ? { class: "bad" } : {});
    }
    by("events-none").hidden = got.events.length > 0;
  });
}
