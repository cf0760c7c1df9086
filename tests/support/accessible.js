/* What of the page keeps people from using it, one line each. Run in the page. */
(() => {
  const found = [];
  const parse = text => { const n = text.match(/[\d.]+/g).map(Number); return { r: n[0], g: n[1], b: n[2], a: n.length > 3 ? n[3] : 1 }; };
  const over = (top, below) => ({ r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1 });
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * channel(c.r) + 0.7152 * channel(c.g) + 0.0722 * channel(c.b);
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const back = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const seen = element => { const box = element.getBoundingClientRect(), style = getComputedStyle(element); return box.width > 1 && box.height > 1 && style.visibility !== "hidden"; };
  let texts = 0;
  for (const element of document.querySelectorAll("body *")) {
    if (!seen(element)) continue;
    const style = getComputedStyle(element), what = element.tagName + "#" + element.id + " " + element.textContent.trim().slice(0, 30);
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if ((own && !["SCRIPT", "STYLE", "OPTION"].includes(element.tagName)) || ["INPUT", "SELECT"].includes(element.tagName)) {
      texts++;
      const ground = back(element), ink = over(parse(element instanceof SVGElement ? style.fill : style.color), ground);
      const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
      if (!element.disabled && ratio(ink, ground) < least) found.push("contrast " + ratio(ink, ground).toFixed(2) + ": " + what);
    }
    if (element.tabIndex > 0) found.push("a place of its own in the tab order: " + what);
    if (["svg", "CANVAS"].includes(element.tagName) && !element.getAttribute("aria-label") && !element.getAttribute("aria-labelledby")) found.push("a picture without words: " + what);
    if (element.tagName === "TH" && !element.scope) found.push("a heading of nothing: " + what);
    if (["INPUT", "SELECT"].includes(element.tagName) && !element.labels.length) found.push("no label: " + what);
    if (["BUTTON", "INPUT", "SELECT"].includes(element.tagName) && element.getBoundingClientRect().height < 24) found.push("too small for a finger: " + what);
  }
  /* Colours that carry a meaning, against what they stand on. */
  for (const mark of document.querySelectorAll(".key i")) {
    if (seen(mark) && ratio(parse(getComputedStyle(mark).backgroundColor), back(mark.parentElement)) < 3) found.push("contrast of a mark: " + mark.parentElement.textContent);
  }
  for (const table of document.querySelectorAll("table")) if (!table.caption) found.push("a table without a caption");
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push("twice: #" + id);
  for (const name of ["aria-labelledby", "aria-describedby"]) for (const element of document.querySelectorAll("[" + name + "]")) if (!document.getElementById(element.getAttribute(name))) found.push("refers to nothing: " + name + "=" + element.getAttribute(name));
  let level = 0;
  for (const heading of document.querySelectorAll("h1,h2,h3,h4")) { const next = Number(heading.tagName[1]); if (next > level + 1) found.push("a level left out before: " + heading.textContent); level = next; }
  if (!document.documentElement.lang || !document.title) found.push("no language or title");
  if (document.documentElement.scrollWidth > innerWidth) found.push("wider than the window: " + document.documentElement.scrollWidth + " > " + innerWidth);
  if (texts < 30) found.push("only " + texts + " texts were looked at");
  return found;
})()
