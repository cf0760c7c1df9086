/* The map of a device's chunks: every byte to scale, in rows like a text. */
const KINDS = ["live", "shared", "pending", "idle", "held"];
const KIND_WORDS = ["live", "live and shared with other processes", "free, but uses may still run", "idle", "being lent or taken back"];
const SIZES = [[1 << 20, "up to 1 MiB"], [1 << 24, "up to 16 MiB"], [1 << 27, "up to 128 MiB"], [2 ** 30, "up to 1 GiB"], [Infinity, "over 1 GiB"]];

function ChunkMap(canvas, told, key, choice) {
  const ROW = 18, GAP = 2;
  let map = null, parts = [], total = 0, at = -1, colors = [];

  function take(fresh) {
    map = fresh;
    parts = [];
    total = 0;
    if (map) for (const chunk of map.chunks) {
      let offset = 0;
      for (const [length, kind, block, stream, holder] of chunk.parts) {
        parts.push({ start: total, bytes: length, kind, block, stream, holder, chunk, offset, first: offset === 0 });
        total += length;
        offset += length;
      }
    }
    at = Math.min(at, parts.length - 1);
    paint();
    legend();
  }

  /* What a part is called under the chosen question, and by which of the colours. */
  function group(part) {
    if (part.kind > 1) return { name: KINDS[part.kind], color: KINDS[part.kind] };
    const question = choice.value;
    if (question === "stream") return { name: map.streams[part.stream] };
    if (question === "holder") return { name: map.holders[part.holder] };
    if (question === "size") { const bin = SIZES.findIndex(([most]) => part.block <= most); return { name: SIZES[bin][1], color: "c" + bin }; }
    return { name: KINDS[part.kind], color: KINDS[part.kind] };
  }

  function groups() {
    const found = new Map();
    for (const part of parts) {
      const { name, color } = group(part);
      const sum = found.get(name) || { name, color, bytes: 0 };
      sum.bytes += part.bytes;
      found.set(name, sum);
    }
    const sorted = [...found.values()].sort((a, b) => b.bytes - a.bytes);
    let next = 0;
    for (const one of sorted) if (!one.color) one.color = next < 7 ? "c" + next++ : "c7";
    return sorted;
  }

  function rows() {
    return Math.max(4, Math.min(16, Math.ceil(total / 2 ** 26)));
  }

  function paint() {
    canvas.style.height = rows() * (ROW + GAP) + GAP + 2 + "px";
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const sorted = groups(), of = new Map(sorted.map(one => [one.name, one.color]));
    const cache = {};
    const real = name => cache[name] || (cache[name] = color(name));
    const each = total / rows(), scale = width / each, edge = color("back");
    const box = (part, draw) => {
      let start = part.start, left = part.bytes;
      while (left > 0) {
        const row = Math.min(Math.floor(start / each), rows() - 1);
        const inRow = row === rows() - 1 ? left : Math.min(left, (row + 1) * each - start);
        if (inRow <= 0) break;
        draw((start - row * each) * scale, GAP + row * (ROW + GAP), Math.max(inRow * scale, .4));
        start += inRow;
        left -= inRow;
      }
    };
    for (const part of parts) {
      pen.fillStyle = real(of.get(group(part).name));
      box(part, (x, y, w) => pen.fillRect(x, y, w, ROW));
    }
    pen.fillStyle = edge;
    for (const part of parts) if (part.first && part.chunk.bytes * scale > 5) box({ start: part.start, bytes: 1 }, (x, y) => pen.fillRect(x, y, 1, ROW));
    if (parts[at]) {
      pen.strokeStyle = color("text");
      pen.lineWidth = 2;
      box(parts[at], (x, y, w) => pen.strokeRect(x + 1, y + 1, Math.max(w - 2, 2), ROW - 2));
    }
    colors = sorted;
  }

  function legend() {
    key.textContent = "";
    for (const one of colors.slice(0, 8)) {
      const item = make("li", key);
      make("i", item).style.background = "var(--" + one.color + ")";
      item.append(one.name + " " + bytes(one.bytes));
    }
    const rest = colors.slice(8);
    if (rest.length) make("li", key, rest.length + " more " + bytes(rest.reduce((sum, one) => sum + one.bytes, 0)));
  }

  function tell() {
    const part = parts[at];
    if (!part) return;
    const live = part.kind < 2 ? ", of a block of " + bytes(part.block) + " by " + map.holders[part.holder] + " on " + map.streams[part.stream] : "";
    told.textContent = bytes(part.bytes) + " " + KIND_WORDS[part.kind] + live + "; at " + bytes(part.offset) + " of chunk " + part.chunk.id + " (" + bytes(part.chunk.bytes) + ")";
    paint();
  }

  canvas.addEventListener("pointermove", event => {
    if (!total) return;
    const row = Math.min(rows() - 1, Math.floor((event.offsetY - GAP) / (ROW + GAP)));
    const wanted = (Math.max(0, row) + event.offsetX / canvas.clientWidth) * total / rows();
    let low = 0, high = parts.length - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (parts[middle].start <= wanted) low = middle; else high = middle - 1; }
    if (low !== at) { at = low; tell(); }
  });
  canvas.addEventListener("keydown", event => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -parts.length, End: parts.length };
    if (!(event.key in steps) || !parts.length) return;
    event.preventDefault();
    at = Math.max(0, Math.min(parts.length - 1, at + steps[event.key]));
    tell();
  });
  choice.addEventListener("change", () => { paint(); legend(); });
  return { take, paint };
}
