// The browser of single records. All text reaches the page as text nodes; nothing of the data is ever parsed as markup.

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The text behind a script element of base64 of gzip. */
async function unpack(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function theme() {
  const button = byId("theme");
  const dark = () =>
    (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const say = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; say(); });
  say();
}

/** For the time of printing, all that is folded is open. */
function printing() {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((one) => !one.querySelector("pre"));
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
}

const FACETS = ["benchmark", "model", "setting", "dataset", "length", "label"];

/** What is chosen, and the numbers of the records that fit, in order. */
class Store {
  constructor(index) {
    Object.assign(this, index);
    this.size = this.columns.score.length;
    this.found = Uint32Array.from({ length: this.size }, (_, i) => i);
    this.details = new Map();
    const text = this.questions.map((question) => [question.text, ...question.answers].join("\n").toLowerCase());
    this.contains = (row, words) => text[this.columns.question[row]].includes(words) || this.columns.answer[row].toLowerCase().includes(words);
  }

  name(facet, row) {
    const number = this.columns[facet][row];
    return facet === "label" ? (this.labels[number]?.[1] ?? "") : this.names[facet][number];
  }

  language(row) { return this.languages[this.columns.dataset[row]]; }

  /** A null score (no answer) counts as 0, as in the means. */
  filter({ facets, low, high, text }) {
    const wanted = Object.entries(facets).map(([facet, value]) => [this.columns[facet], value]);
    const words = text.toLowerCase();
    const found = [];
    for (let row = 0; row < this.size; row++) {
      const score = this.columns.score[row] ?? 0;
      if (score >= low && score <= high && wanted.every(([column, value]) => column[row] === value) && (!words || this.contains(row, words))) found.push(row);
    }
    this.found = Uint32Array.from(found);
  }

  sort(name, down) {
    if (!name) { this.found.sort(); return; }
    const column = this.columns[name];
    const rank = this.ranks?.[name] ?? this.rank(name);
    const key = (row) => (rank ? rank[column[row]] : column[row] ?? -1);
    this.found.sort((a, b) => { const [x, y] = [key(a), key(b)]; return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1) || a - b; });
  }

  /** The order of a facet's names: as they stand for labels and lengths, else by the alphabet. */
  rank(name) {
    const names = name === "question" ? this.questions.map((question) => question.text) : this.names[name];
    if (!names) return null;
    const order = names.map((_, i) => i).sort((a, b) => names[a].localeCompare(names[b], "en", { numeric: true }));
    const rank = new Uint32Array(names.length);
    order.forEach((number, place) => { rank[number] = place; });
    this.ranks = { ...this.ranks, [name]: rank };
    return rank;
  }

  /** What a part says of a record, read when first asked for. */
  async detail(row) {
    const part = Math.floor(row / this.part);
    if (!this.details.has(part)) this.details.set(part, unpack(`part-${part}`).then(JSON.parse));
    const { rows, excerpts } = await this.details.get(part);
    const found = rows[row % this.part];
    return { ...found, excerpts: found.excerpts.map((number) => excerpts[number]) };
  }

  /** All records of the same question. */
  alike(row) {
    const question = this.columns.question[row];
    return [...Array(this.size).keys()].filter((other) => this.columns.question[other] === question);
  }
}

const percent = (score) => (score === null ? "no answer" : score.toFixed(1));
const lengthOrder = (a, b) => a.localeCompare(b, "en", { numeric: true });
const units = (name) => parseFloat(name) * (/k$/i.test(name) ? 1000 : 1) || 0;

function fillFilters(store, form) {
  for (const facet of FACETS) {
    const names = facet === "label" ? store.labels.map((label) => label[1]) : store.names[facet];
    const used = new Set(store.columns[facet]);
    let order = names.map((_, i) => i).filter((i) => used.has(i));
    if (facet === "length") order.sort((a, b) => units(names[a]) - units(names[b]) || lengthOrder(names[a], names[b]));
    const select = form.elements.namedItem(facet);
    for (const number of order) select.append(el("option", { value: number }, names[number]));
    select.closest("label").hidden = order.length < 2 && facet !== "label";
  }
  form.hidden = false;
}

function chosen(form) {
  const facets = {};
  for (const facet of FACETS) if (form.elements.namedItem(facet).value !== "") facets[facet] = Number(form.elements.namedItem(facet).value);
  const bound = (name, other) => (form.elements.namedItem(name).value === "" ? other : Number(form.elements.namedItem(name).value));
  return { facets, low: bound("low", -1), high: bound("high", 101), text: form.elements.namedItem("text").value.trim() };
}

function excerpt(found, lang) {
  const [from, to] = found.mark;
  const state = found.kept === null ? "" : found.kept ? "kept" : "cut";
  const words = { kept: "sent to the model", cut: "cut away before the model saw it", "": "whether it was sent cannot be told" }[state];
  const what = { evidence: "Evidence", keyword: "The keyword or answer in the context", confusing: "Confusing fact" }[found.kind] ?? found.kind;
  return el("figure", {},
    el("figcaption", {}, `${what}, from character ${found.start.toLocaleString("en")}: ${words}`),
    el("p", { class: `text excerpt ${state}`, lang, tabindex: "0" },
      found.start ? "… " : "", found.text.slice(0, from), el("mark", {}, found.text.slice(from, to)), found.text.slice(to), " …"));
}

function facts(pairs) {
  return el("dl", { class: "facts" },
    ...pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
}

class Viewer {
  constructor(store) {
    this.store = store;
    this.dialog = byId("record");
    this.dialog.addEventListener("close", () => this.opener?.focus());
  }

  async open(row, opener) {
    if (opener) this.opener = opener;
    const store = this.store;
    const found = await store.detail(row);
    const question = store.questions[store.columns.question[row]];
    const lang = store.language(row);
    const place = store.found.indexOf(row);
    const step = (by, text) => el("button", { type: "button", disabled: place < 0 || store.found[place + by] === undefined ? "" : null, click: () => this.open(store.found[place + by]) }, text);
    const text = (value) => el("p", { class: "text", lang, tabindex: "0" }, value === "" ? el("em", {}, "(empty)") : value);
    const flags = found.flags.map(([name, state, why]) => [store.flags[name] ?? name, `${store.states[state] ?? state}: ${why}`]);
    const at = (value) => (value === null || value === undefined ? null : `${(100 * value).toFixed(1)} %`);
    byId("record-body").replaceChildren(
      el("div", { class: "bar" }, step(-1, "Previous"), step(1, "Next"), el("button", { type: "button", click: () => this.dialog.close() }, "Close")),
      el("h3", { id: "record-title", tabindex: "-1" }, `${store.name("dataset", row)}, ${store.name("length", row)}: ${found.id}`),
      facts([
        ["model", [store.name("model", row), store.name("setting", row)].join(", ")],
        ["score", percent(store.columns.score[row]) + (found.gated ? ` (${found.plain?.toFixed(1)} before the keyword gate)` : "")],
        ["fate", store.name("label", row)],
        ["repeat", found.repeat],
      ]),
      el("h4", {}, "Question"), text(question.text),
      ...(question.choices.length ? [el("h4", {}, "Choices"), ...question.choices.map((choice, i) => text(`${"ABCD"[i]}: ${choice}`))] : []),
      el("h4", {}, question.answers.length > 1 ? "Right answers" : "Right answer"), ...question.answers.map(text),
      ...(question.keyword ? [el("h4", {}, "Answer keyword"), text(question.keyword)] : []),
      el("h4", {}, "Answer of the model"), found.error ? text(`failed: ${found.error}`) : text(found.answer),
      ...(found.excerpts.length ? [el("h4", {}, "In the context"), ...found.excerpts.map((one) => excerpt(one, lang))] : []),
      ...(flags.length ? [el("h4", {}, "Flags"), facts(flags)] : []),
      el("h4", {}, "Facts"),
      facts([
        ...Object.entries(found.facts).map(([name, value]) => [name.replaceAll("_", " "), typeof value === "number" ? value.toLocaleString("en") : value]),
        ["place of the evidence", at(found.position?.before)], ["place in what was sent", at(found.position?.after)],
        ["evidence", found.evidence ? found.evidence.why : null],
      ]),
      el("h4", {}, "The same question at other lengths and of other models"), this.others(row),
    );
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    byId("record-title").focus();
  }

  others(row) {
    const store = this.store;
    const key = (other) => `${store.name("model", other)} ${store.name("setting", other)}`;
    const rows = store.alike(row).sort((a, b) => key(a).localeCompare(key(b)) || units(store.name("length", a)) - units(store.name("length", b)) || a - b);
    return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "The same question" }, el("table", {},
      el("thead", {}, el("tr", {}, ...["model", "length", "score", "fate", "answer"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...rows.map((other) => el("tr", { "aria-current": other === row ? "true" : null },
        el("td", {}, key(other)),
        el("td", {}, other === row ? `${store.name("length", other)} (this)` : el("button", { type: "button", click: () => this.open(other) }, store.name("length", other))),
        el("td", { class: "number" }, percent(store.columns.score[other])),
        el("td", {}, store.name("label", other)),
        el("td", { lang: store.language(other) }, store.columns.answer[other]))))));
  }
}

async function browser() {
  const form = byId("filters");
  if (!form) { document.documentElement.dataset.ready = 0; return; }
  byId("scriptless").remove();
  const [index, library] = await Promise.all([unpack("index"), unpack("library")]);
  const { default: DataTable } = await import(URL.createObjectURL(new Blob([library], { type: "text/javascript" })));
  const store = new Store(JSON.parse(index));
  const viewer = new Viewer(store);
  fillFilters(store, form);
  const plain = DataTable.render.text();
  const column = (name, title, width, more = {}) => ({ data: name, name, title, width, render: plain, ...more });
  const several = (name, ...rest) => (store.names[name].length > 1 ? [column(name, ...rest)] : []);
  const written = (cell, _, row) => { cell.lang = row.lang; cell.title = cell.textContent; };
  const table = new DataTable("#table", {
    // The table shows a page at a time and asks for it; the records themselves stay in columns.
    serverSide: true,
    ajax: (request, done) => {
      const order = request.order[0];
      store.sort(order && request.columns[order.column].name, order?.dir === "desc");
      const rows = store.found.slice(request.start, request.start + request.length);
      done({ draw: request.draw, recordsTotal: store.size, recordsFiltered: store.found.length, data: [...rows].map((row) => ({
        row, lang: store.language(row),
        ...Object.fromEntries(FACETS.map((facet) => [facet, store.name(facet, row)])),
        score: percent(store.columns.score[row]), question: store.questions[store.columns.question[row]].text.slice(0, 200), answer: store.columns.answer[row],
      })) });
    },
    columns: [
      { data: "row", title: "record", width: "5rem", orderable: false, render: (row, type, data) => (type === "display" ? el("button", { type: "button", click: (event) => viewer.open(row, event.currentTarget), "aria-label": `Open the record: ${data.question.slice(0, 60)}` }, "Open") : row) },
      ...several("benchmark", "benchmark", "7rem"), ...several("model", "model", "9rem"), ...several("setting", "setting", "5rem"),
      column("dataset", "data set", "10rem"), ...several("length", "length", "5rem"),
      column("score", "score", "5rem", { className: "number" }), column("label", "fate", "11rem"),
      column("question", "question", "16rem", { createdCell: written }), column("answer", "answer of the model", "14rem", { orderable: false, createdCell: written }),
    ],
    order: [], searching: false, pageLength: 25, lengthMenu: [10, 25, 50, 100], autoWidth: false, deferRender: true,
    layout: { topStart: null, topEnd: null, bottomStart: ["info", "pageLength"], bottomEnd: "paging" },
    language: { info: "_START_ to _END_ of _TOTAL_", infoEmpty: "no record", infoFiltered: "", zeroRecords: "No record fits.", lengthMenu: "_MENU_ a page", entries: { _: "records", 1: "record" } },
  });
  const show = () => {
    store.filter(chosen(form));
    table.page("first").draw(false);
    byId("count").textContent = `${store.found.length.toLocaleString("en")} of ${store.size.toLocaleString("en")} records`;
  };
  let waiting;
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 60); });
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const link of document.querySelectorAll("a[data-label]")) {
    link.addEventListener("click", () => {
      form.reset();
      for (const facet of FACETS) {
        const names = facet === "label" ? store.labels.map((label) => label[0]) : store.names[facet];
        const number = names.indexOf(link.dataset[facet]);
        if (link.dataset[facet] !== undefined && number >= 0) form.elements.namedItem(facet).value = number;
      }
      show();
    });
  }
  show();
  document.documentElement.dataset.ready = Math.round(performance.now()); // milliseconds since the page was opened
}

theme();
printing();
await browser();
