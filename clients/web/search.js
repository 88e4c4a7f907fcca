// Finds text in a transcript: what matches is marked, turns without a match are out of sight.

/** Show the turns in `element` that hold `text`, all where it is empty; returns how many there are, or null. */
export function find(element, text) {
  const wanted = text.trim().toLocaleLowerCase();
  const ranges = [];
  let found = 0;
  for (const turn of element.children) {
    const hits = wanted ? matches(turn, wanted) : [];
    turn.hidden = wanted !== "" && hits.length === 0;
    found += hits.length > 0 ? 1 : 0;
    ranges.push(...hits);
  }
  // Marks text without touching the nodes that the view keeps; without it turns are still sorted out.
  globalThis.CSS?.highlights?.set("found", new Highlight(...ranges));
  return wanted ? found : null;
}

function matches(turn, wanted) {
  const ranges = [];
  for (const element of turn.querySelectorAll(".speaker, .text")) {
    const node = element.firstChild;
    const text = node?.textContent.toLocaleLowerCase() ?? "";
    // Where lower case has another length, places are not the same.
    if (!node || text.length !== node.textContent.length) continue;
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  return ranges;
}
