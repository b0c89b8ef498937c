// Making and changing elements. Text goes in as text only: no function here takes markup.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

/** An element with these attributes (`class`, `title`, ...) and children (elements or text). */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of a drawing. */
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** Puts `text` into a node unless it stands there: what did not change is not read out again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute, or takes it away with "". */
export function mark(node, attribute, value) {
  if (!value) node.removeAttribute(attribute);
  else if (node.getAttribute(attribute) !== value) node.setAttribute(attribute, value);
}

/** A list of terms: [term, text, title?]. Its nodes stay, so that a selection does. */
export function describe(list, rows) {
  while (list.children.length > rows.length) list.lastElementChild.remove();
  rows.forEach(([term, text, title], i) => {
    const row = list.children[i] ?? addRow(list);
    say(row.firstElementChild, term);
    say(row.lastElementChild, text);
    mark(row.lastElementChild, "title", title);
  });
}

function addRow(list) {
  const row = element("div", {}, element("dt"), element("dd"));
  list.append(row);
  return row;
}
