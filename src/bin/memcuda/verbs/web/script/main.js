/* What is looked at, and how often. */
let pools = [], chosen = null, keep = 600;
const samples = Samples(), map = ChunkMap(by("map"), by("map-told"), by("map-key"), by("map-by"));

function choose(pool, follow) {
  if (pool !== chosen) { chosen = pool; map.take(null); by("map-facts").textContent = ""; by("fragmentation").textContent = ""; }
  const found = pools.find(one => one.pool === pool);
  if (found) history.replaceState(null, "", "#" + found.pid + "-" + found.ordinal);
  table.take(pools, chosen);
  lookNow();
  mapNow();
  if (follow) { by("chosen-title").tabIndex = -1; by("chosen-title").focus({ preventScroll: true }); by("chosen").scrollIntoView(); }
}

function largest() {
  return pools.slice().sort((a, b) => b.physical_bytes - a.physical_bytes || a.pid - b.pid).slice(0, 8);
}

function facts(pool) {
  by("chosen-title").textContent = "Memory of " + pool.command + " " + pool.pid + " on device " + pool.ordinal;
  by("chosen-facts").textContent = [
    "live " + bytes(pool.live_bytes) + " (highest " + bytes(pool.peak_live_bytes) + ")", "physical " + bytes(pool.physical_bytes) + " (highest " + bytes(pool.peak_physical_bytes) + ")",
    "shared " + bytes(pool.shared_bytes), many(pool.chunks, "chunk"), many(pool.requests, "request"), share(pool.hits, pool.requests) + " hits", many(pool.stitches, "stitch").replace("stitchs", "stitches"),
    (pool.driver_ns / 1e9).toFixed(3) + " s in the driver", pool.out_of_memory ? many(pool.out_of_memory, "refusal") + " for lack of memory" : ""].filter(Boolean).join(", ");
}

function sum() {
  const total = name => pools.reduce((sum, pool) => sum + pool[name], 0), count = new Set(pools.map(pool => pool.pid)).size;
  by("sum").textContent = pools.length === 0 ? "No process that can be seen runs on the pool." :
    count + (count === 1 ? " process" : " processes") + ", live " + bytes(total("live_bytes")) + ", idle " + bytes(total("idle_bytes")) + " (pending " + bytes(total("pending_bytes")) + "), shared " + bytes(total("shared_bytes")) + ", physical " + bytes(total("physical_bytes"));
}

function unread(list) {
  const box = by("unread");
  box.hidden = list.length === 0;
  box.firstElementChild.textContent = many(list.length, "process").replace("processs", "processes") + " cannot be read";
  const lines = list.map(([pid, why]) => "process " + pid + ": " + why).join("\n"), shown = box.lastElementChild;
  if (shown.dataset.lines !== lines) { shown.dataset.lines = lines; shown.textContent = ""; for (const line of lines.split("\n")) make("li", shown, line); }
}

const table = Pools(choose);
const lookNow = again(1000, async () => {
  const now = await ask("/api/now");
  pools = now.pools;
  keep = now.samples;
  by("version").textContent = "memcuda " + now.version + ".";
  by("state").textContent = "";
  if (!pools.some(pool => pool.pool === chosen)) {
    const wanted = pools.find(pool => "#" + pool.pid + "-" + pool.ordinal === location.hash) || (chosen === null && largest()[0]);
    if (wanted) { chosen = wanted.pool; mapNow(); }
  }
  sum();
  unread(now.unread);
  table.take(pools, chosen);
  const shown = largest();
  const pool = pools.find(one => one.pool === chosen);
  await samples.update([...new Set(shown.map(one => one.pool).concat(chosen || []))], keep);
  const line = (one, at) => ({ name: one.command + " " + one.pid + (one.ordinal ? " device " + one.ordinal : ""), color: "c" + at, times: samples.of(one.pool).time_ms, values: samples.of(one.pool).physical });
  chart(by("largest"), shown.filter(one => samples.of(one.pool)).map(line), false, "Physical memory of the largest processes");
  by("chosen-body").hidden = !chosen;
  if (pool) facts(pool);
  else if (chosen) by("chosen-facts").textContent = "This process has ended. What it held before:";
  const got = samples.of(chosen);
  if (got) chart(by("over-time"), ["live", "pending", "idle"].map(name => ({ name, color: name, times: got.time_ms, values: got[name] })), true, "Memory over time");
});

const mapNow = again(2000, async () => {
  if (!pools.some(pool => pool.pool === chosen)) return;
  const asked = chosen;
  const got = await ask("/api/map?pool=" + asked);
  if (asked !== chosen) return;
  if (got.why) { by("map-facts").textContent = "No map: " + got.why; map.take(null); return; }
  by("map-facts").textContent = [got.name, got.uuid, got.total_bytes ? bytes(got.total_bytes) + " in all" : "", got.limit_bytes ? "limit " + bytes(got.limit_bytes) : "", many(got.chunks.length, "chunk"),
    got.joined_bytes ? "parts below " + bytes(got.joined_bytes) + " are joined" : "", "the pool stood still for " + (got.held_ns / 1e6).toFixed(2) + " ms for this"].filter(Boolean).join(", ");
  map.take(got);
  const list = by("fragmentation");
  list.textContent = "";
  const tell = (name, text) => { make("dt", list, name); make("dd", list, text); };
  tell("idle", bytes(got.idle_bytes) + " in " + many(got.idle_runs, "piece") + ", the largest inside one chunk " + bytes(got.largest_idle_bytes));
  tell("outside the largest piece", share(got.idle_bytes - got.largest_idle_bytes, got.idle_bytes) + " of what is idle; the pool joins such pieces where whole chunks allow it");
  tell("pending", bytes(got.pending_bytes));
  tell("rounding", bytes(got.rounding_bytes) + " lent beyond what was asked for");
  tell("shared", bytes(got.shared_bytes));
});

Names();
Events();
addEventListener("resize", () => { map.paint(); lookNow(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map.paint());
document.addEventListener("visibilitychange", () => { if (visible()) { lookNow(); mapNow(); } });
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
