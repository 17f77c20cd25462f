"use strict";
(() => {
  const source = document.getElementById("moves-data");
  if (!source) return;
  const { strings, moves } = JSON.parse(source.textContent);
  // One row: wave, namespace, pod, owner, from, to, strategy, reason, gain, rank of the gain, cost, outcome, message, tone.
  const [WAVE, NAMESPACE, POD, OWNER, FROM, TO, STRATEGY, REASON, GAIN, RANK, COST, OUTCOME, MESSAGE, TONE] = Array.from({ length: 14 }, (_, i) => i);
  const NUMBERS = new Set([WAVE, RANK, COST]);
  const text = (row, column) => (NUMBERS.has(column) ? row[column] : strings[row[column]]);
  const FEW = 10;
  const PAGE = 100;
  const TONES = ["", "done", "unmet", "failed"];
  const rows = moves.map((row, index) => ({ row, index, words: row.filter((_, c) => !NUMBERS.has(c) && c !== TONE).map((n) => strings[n]).join(" ").toLowerCase() }));
  const table = document.getElementById("moves-table");
  const search = document.getElementById("search");
  const grouping = document.getElementById("grouping");
  const status = document.getElementById("moves-status");
  const more = document.getElementById("more");
  const heads = [...table.tHead.querySelectorAll("th")];
  const acted = heads.some((head) => Number(head.dataset.column) === OUTCOME);
  const state = { sort: null, down: false, shown: FEW, open: new Map() };

  const make = (tag, content, style) => {
    const element = document.createElement(tag);
    if (content !== undefined) element.textContent = content;
    if (style) element.className = style;
    return element;
  };
  const cell = (line, label, first, second, style) => {
    const td = make("td");
    td.setAttribute("role", "cell");
    td.dataset.label = label;
    td.append(make("span", first, style));
    if (second) td.append(make("small", second));
    line.append(td);
  };
  const line = ({ row }) => {
    const tr = make("tr", undefined, "move");
    tr.setAttribute("role", "row");
    cell(tr, "Wave", row[WAVE]);
    cell(tr, "", `${text(row, NAMESPACE)}/${text(row, POD)}`, text(row, OWNER), "name");
    tr.lastChild.title = `rebalancer explain pod ${text(row, NAMESPACE)}/${text(row, POD)}`;
    cell(tr, "From", text(row, FROM));
    tr.lastChild.append(make("span", `\u2192 ${text(row, TO)}`, "to"));
    cell(tr, "Why", text(row, REASON), text(row, STRATEGY));
    cell(tr, "Gain", text(row, GAIN), `cost ${row[COST]}`);
    if (acted) cell(tr, "Outcome", text(row, OUTCOME), text(row, MESSAGE), TONES[row[TONE]]);
    return tr;
  };
  const KEYS = { namespace: NAMESPACE, wave: WAVE, workload: OWNER, strategy: STRATEGY };
  const grouped = (found) => {
    const column = KEYS[grouping.value];
    const groups = new Map();
    for (const one of found) {
      const key = column === undefined ? "" : String(text(one.row, column));
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(one);
    }
    return groups;
  };
  const header = (key, members) => {
    const tr = make("tr", undefined, "group");
    tr.setAttribute("role", "row");
    const th = make("th");
    th.colSpan = heads.length;
    th.scope = "rowgroup";
    th.setAttribute("role", "rowheader");
    const button = make("button", grouping.value === "wave" ? `Wave ${key}` : key);
    const pods = new Set(members.map((one) => one.row[OWNER])).size;
    button.append(make("span", `${members.length.toLocaleString("en")} move${members.length === 1 ? "" : "s"}, ${pods.toLocaleString("en")} workload${pods === 1 ? "" : "s"}`));
    button.type = "button";
    button.setAttribute("aria-expanded", state.open.has(key));
    button.addEventListener("click", () => {
      if (state.open.has(key)) state.open.delete(key); else state.open.set(key, true);
      draw();
      table.querySelectorAll(".group button").forEach((each) => { if (each.firstChild.data === button.firstChild.data) each.focus(); });
    });
    th.append(button);
    tr.append(th);
    return tr;
  };
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((one) => words.every((word) => one.words.includes(word)));
    if (state.sort !== null) {
      const sign = state.down ? -1 : 1;
      found.sort((a, b) => {
        const [x, y] = [text(a.row, state.sort), text(b.row, state.sort)];
        const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
        return sign * order || a.index - b.index;
      });
    }
    table.querySelectorAll("tbody").forEach((body) => body.remove());
    let room = state.shown;
    let left = 0;
    const folds = grouping.value !== "";
    const groups = grouped(found);
    let drawn = 0;
    for (const [key, members] of groups) {
      const body = make("tbody");
      body.setAttribute("role", "rowgroup");
      if (folds) {
        if (drawn++ >= state.shown) { left += 1; continue; }
        body.append(header(key, members));
      }
      if (!folds || state.open.has(key)) {
        const part = members.slice(0, Math.max(room, 0));
        body.append(...part.map(line));
        room -= part.length;
        left += members.length - part.length;
      }
      table.append(body);
    }
    const hidden = folds || found.length <= state.shown ? "" : `, ${state.shown.toLocaleString("en")} shown`;
    const all = `${rows.length.toLocaleString("en")} move${rows.length === 1 ? "" : "s"}`;
    status.textContent = `${found.length < rows.length ? `${found.length.toLocaleString("en")} of ` : ""}${all}${hidden}`;
    more.hidden = left === 0;
    more.textContent = `Show more (${left.toLocaleString("en")} left)`;
  };
  const restart = () => { state.shown = PAGE; draw(); };
  let timer;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(restart, 120); });
  grouping.addEventListener("change", () => { state.open.clear(); restart(); });
  more.addEventListener("click", () => { state.shown += PAGE; draw(); });
  heads.forEach((head) => head.querySelector("button").addEventListener("click", () => {
    const column = Number(head.dataset.column);
    state.down = state.sort === column && !state.down;
    state.sort = column;
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    draw();
  }));
  const MANY = 300;
  // A print has every move, and of very many every workload: moves one by one would be hundreds of sheets.
  let screen;
  addEventListener("beforeprint", () => {
    screen = { shown: state.shown, open: new Map(state.open), folded: [...document.querySelectorAll("details:not([open])")] };
    state.shown = Infinity;
    if (rows.length <= MANY) for (const key of grouped(rows).keys()) state.open.set(key, true);
    draw();
    screen.folded.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => {
    Object.assign(state, { shown: screen.shown, open: screen.open });
    draw();
    screen.folded.forEach((each) => { each.open = false; });
  });
  if (rows.length > MANY) grouping.value = "workload";
  draw();
})();
