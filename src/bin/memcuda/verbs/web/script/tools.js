/* What everything here uses: elements, numbers for people, questions to the server. */
const by = id => document.getElementById(id);

function make(name, parent, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const key in attributes || {}) made.setAttribute(key, attributes[key]);
  if (parent) parent.append(made);
  return made;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (n >= 1024 && at < 4) { n /= 1024; at++; }
  return (at ? n.toFixed(n < 9.995 ? 2 : 1) : n) + " " + units[at];
}

const share = (part, whole) => typeof part === "number" && whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "-";
const rate = n => n === undefined ? "-" : n >= 10000 ? (n / 1000).toFixed(0) + " k" : n >= 100 ? n.toFixed(0) : n.toFixed(1);
const clock = ms => new Date(ms).toLocaleTimeString();
const many = (n, one) => n.toLocaleString("en") + " " + one + (n === 1 ? "" : "s");
const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const visible = () => document.visibilityState === "visible";
const pause = ms => new Promise(done => setTimeout(done, ms));

/* What is behind a path; an error has the server's own line. */
async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", credentials: "same-origin" });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

/* Does something now, and again so long after it is done, while the page is in sight. */
function again(ms, what) {
  let wake = () => {}, wanted = false;
  (async () => {
    for (;;) {
      wanted = false;
      if (visible()) {
        try { await what(); } catch (error) { by("state").textContent = error instanceof TypeError ? "The server does not answer; trying again." : error.message; }
      }
      if (!wanted) await Promise.race([pause(ms), new Promise(done => { wake = done; })]);
    }
  })();
  return () => { wanted = true; wake(); };
}

/* Table rows by their key, so that what has the focus stays where it is. */
function fill(body, rows, key, draw) {
  const old = new Map([...body.children].map(row => [row.dataset.key, row]));
  rows.forEach((row, at) => {
    const name = key(row);
    let shown = old.get(name);
    old.delete(name);
    if (!shown) { shown = make("tr"); shown.dataset.key = name; }
    draw(shown, row);
    if (body.children[at] !== shown) body.insertBefore(shown, body.children[at] || null);
  });
  for (const gone of old.values()) gone.remove();
}

function cell(row, at, text, className) {
  const found = row.children[at] || make("td", row);
  if (className && found.className !== className) found.className = className;
  if (found.textContent !== text) found.textContent = text;
}
