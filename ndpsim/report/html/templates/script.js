// What a page can do where scripts run. All of it can be read where none do.
"use strict";

// A number is sorted by its value, everything else by its text; what is empty comes last.
function compare(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const both = typeof a === "number" && typeof b === "number";
  return sign * (both ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
}

function keyOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
}

function sortBy(head, column) {
  const body = head.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = Array.from(body.rows, (row) => [keyOf(row, column), row]);
  rows.sort((a, b) => compare(a[0], b[0], down ? -1 : 1));
  body.append(...rows.map((pair) => pair[1]));
}

for (const head of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.textContent = head.textContent;
  button.title = "sort";
  button.addEventListener("click", () => sortBy(head, head.cellIndex));
  head.replaceChildren(button);
}

// A picture shows the part of itself that its viewBox names: [left, top, width, height].
function zoomable(figure) {
  const svg = figure.querySelector("svg");
  const whole = svg.getAttribute("viewBox").split(" ").map(Number);
  let view = whole.slice();

  function show(left, top, factor) {
    const width = Math.min(whole[2], Math.max(whole[2] / 64, factor * view[2]));
    const height = (width * whole[3]) / whole[2];
    const within = (at, low, room) => Math.min(Math.max(at, low), low + room);
    const corner = [within(left, whole[0], whole[2] - width), within(top, whole[1], whole[3] - height)];
    view = [...corner, width, height];
    svg.setAttribute("viewBox", view.join(" "));
    svg.classList.toggle("zoomed", width < whole[2]);
  }

  // The point at these shares of the picture stays where it is.
  function zoom(factor, across, down) {
    const width = Math.min(whole[2], Math.max(whole[2] / 64, factor * view[2]));
    const change = view[2] - width;
    show(view[0] + across * change, view[1] + (down * change * whole[3]) / whole[2], width / view[2]);
  }

  const bar = document.createElement("div");
  bar.className = "zoom";
  for (const [text, words, act] of [
    ["+", "zoom in", () => zoom(0.5, 0.5, 0.5)],
    ["\u2212", "zoom out", () => zoom(2, 0.5, 0.5)],
    ["whole", "show all of it", () => show(whole[0], whole[1], whole[2] / view[2])],
  ]) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: text, title: words, onclick: act });
    bar.append(button);
  }
  const hint = document.createElement("span");
  hint.textContent = "Ctrl and the wheel zoom, too; drag to move";
  bar.append(hint);
  figure.prepend(bar);

  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && view[2] === whole[2]) return; // a page that is scrolled past a picture goes on
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    const at = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    zoom(event.deltaY < 0 ? 0.8 : 1.25, at[0], at[1]);
  }, { passive: false });
  svg.addEventListener("pointermove", (event) => {
    if (event.buttons !== 1) return;
    const scale = view[2] / svg.getBoundingClientRect().width;
    show(view[0] - scale * event.movementX, view[1] - scale * event.movementY, 1);
  });
}

document.querySelectorAll("figure.picture").forEach(zoomable);
