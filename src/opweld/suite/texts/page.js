"use strict";
const form = document.getElementById("filters");
const body = document.querySelector("#results tbody");
const all = Array.from(body.rows);
const count = document.getElementById("count");

function filter() {
  const words = form.elements.words.value.toLowerCase();
  const chosen = { verdict: form.elements.verdict.value, device: form.elements.device.value };
  let shown = 0;
  for (const row of all) {
    const fits = (!chosen.verdict || row.dataset.verdict === chosen.verdict) &&
      (!chosen.device || row.dataset.device === chosen.device) &&
      (!words || row.textContent.toLowerCase().includes(words));
    row.classList.toggle("hidden", !fits);
    shown += fits;
  }
  count.textContent = `${shown} of ${all.length}`;
}

function sort(index, upwards) {
  const value = (row) => row.cells[index].textContent;
  all.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    const [m, n] = [parseFloat(x), parseFloat(y)];
    const order = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
    return upwards ? order : -order;
  });
  body.append(...all);
}

const devices = new Set(all.map((row) => row.dataset.device));
for (const name of Array.from(devices).filter(Boolean).sort()) {
  form.elements.device.append(new Option(name, name));
}
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
for (const head of document.querySelectorAll("#results th")) {
  let upwards = true;
  head.addEventListener("click", () => { sort(head.cellIndex, upwards); upwards = !upwards; });
}
filter();
