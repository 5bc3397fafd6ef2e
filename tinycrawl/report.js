"use strict";
// The lists of the report. Rows are drawn a hundred at a time: a table of ten thousand would freeze the page.
{
  const WINDOW = 100;
  const data = JSON.parse(document.getElementById("data").textContent);
  const { urls } = data;
  const count = (number) => number.toLocaleString("en");
  const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Only what is surely an address of the web becomes a link; all else stays text.
  function link(url) {
    const text = element("bdi", {}, url);
    return /^https?:\/\/[!-~]+$/i.test(url) ? element("a", { href: url, rel: "noreferrer" }, text) : text;
  }

  class List {
    // columns: { name, kind, key(row) to sort by, null last; fill(row) gives what the cell shows }
    constructor(id, things, columns, size, words, filters = []) {
      Object.assign(this, { columns, words, filters, things });
      this.order = Array.from({ length: size }, (_, row) => row);
      this.total = size;
      this.section = document.getElementById(id);
      // The roles are said, since a narrow window shows rows as blocks, and then some browsers forget that it is a table.
      this.body = element("tbody", { role: "rowgroup" });
      this.state = element("p", { role: "status" });
      this.search = element("input", { type: "search", autocomplete: "off", spellcheck: "false" });
      this.search.addEventListener("input", () => this.filter());
      const controls = element("div", { class: "controls" }, element("label", { class: "search" }, `Search the ${things[1]}`, this.search));
      if (filters.length) {
        this.choice = element("select", {}, ...filters.map(({ name }) => element("option", {}, name)));
        this.choice.addEventListener("change", () => this.filter());
        controls.append(element("label", {}, "Show", this.choice));
      }
      this.steps = [["Previous", -WINDOW], ["Next", WINDOW]].map(([name, step]) => {
        const button = element("button", { type: "button", "aria-label": `${name} ${things[1]}` }, name);
        button.addEventListener("click", () => this.move(step));
        return button;
      });
      this.heads = columns.map((column, index) => {
        const button = element("button", { type: "button" }, column.name);
        button.addEventListener("click", () => this.sort(index));
        return element("th", { scope: "col", role: "columnheader", class: column.kind, "aria-sort": "none" }, button);
      });
      const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...this.heads));
      const table = element("table", { class: "list", role: "table", "aria-labelledby": `${id}-title` }, head, this.body);
      this.box = element("div", { class: "box", tabindex: "0", role: "region", "aria-labelledby": `${id}-title` }, table);
      this.section.append(controls, element("div", { class: "controls" }, this.state, ...this.steps), this.box);
      this.filter();
    }

    filter() {
      const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const accepts = this.choice ? this.filters[this.choice.selectedIndex].accepts : () => true;
      if (words.length) this.texts ??= Array.from({ length: this.total }, (_, row) => this.words(row).join("\n").toLowerCase());
      this.shown = this.order.filter((row) => accepts(row) && words.every((word) => this.texts[row].includes(word)));
      this.start = 0;
      this.draw();
    }

    sort(index) {
      const head = this.heads[index];
      const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of this.heads) other.setAttribute("aria-sort", other === head ? direction : "none");
      const keys = Array.from({ length: this.total }, (_, row) => this.columns[index].key(row));
      const sign = direction === "ascending" ? 1 : -1;
      this.order.sort((a, b) => {
        const [one, two] = [keys[a], keys[b]];
        if (one === two) return a - b;
        if (one === null || two === null) return one === null ? 1 : -1;
        return one < two ? -sign : sign;
      });
      this.filter();
    }

    move(step) {
      this.start += step;
      this.draw();
      this.box.scrollIntoView({ block: "nearest" });
    }

    draw() {
      const end = Math.min(this.start + WINDOW, this.shown.length);
      const rows = this.shown.slice(this.start, end).map((row) =>
        element("tr", { role: "row" }, ...this.columns.map(({ name, kind, fill }) => element("td", { role: "cell", class: kind, "data-name": name }, ...[fill(row)].flat()))),
      );
      this.body.replaceChildren(...rows);
      const of = this.shown.length === this.total ? plural(this.total, ...this.things) : `${count(this.shown.length)} found among ${plural(this.total, ...this.things)}`;
      this.state.textContent = rows.length < this.shown.length ? `${count(this.start + 1)} to ${count(end)} of ${of}` : of;
      const last = this.shown.length - WINDOW;
      for (const [button, isAtEnd] of [[this.steps[0], this.start <= 0], [this.steps[1], this.start >= last]]) {
        // A button that is switched off loses the focus, and with it the reader their place.
        if (isAtEnd && document.activeElement === button) this.steps.find((other) => other !== button).focus();
        button.disabled = isAtEnd;
        button.hidden = this.total <= WINDOW;
      }
    }
  }

  const orNull = (value) => (value === "" ? null : value);
  const lower = (value) => orNull(value)?.toLowerCase() ?? null;
  const name = (names, index) => (index < 0 ? "" : names[index]);
  const end = (row) => (urls.id[row] ? String(urls.status[row] ?? "page") : name(data.reasons, urls.reason[row]));
  const numbers = (values) => ({ kind: "number", key: (row) => values[row], fill: (row) => (values[row] === null ? "" : count(values[row])) });
  const texts = (value, kind = "") => ({ kind, key: (row) => lower(value(row)), fill: value });
  const address = (row) => {
    const other = data.other[row];
    const words = urls.id[row] ? "asked for as " : "led to ";
    return [link(urls.url[row]), ...(other === undefined ? [] : [element("div", { class: "quiet" }, words, element("bdi", {}, other))])];
  };

  function section(id, size, nothing, make) {
    if (size) make();
    else document.getElementById(id).append(element("p", {}, nothing));
  }

  // A site can have one dead link on every page, so these lists are cut; the total is told.
  function places(total, rows) {
    const items = rows.map((row) => element("li", {}, link(typeof row === "number" ? urls.url[row] : row)));
    const more = total > rows.length ? [element("li", { class: "quiet" }, `and ${count(total - rows.length)} more`)] : [];
    if (items.length <= 3) return element("ul", {}, ...items, ...more);
    const rest = element("details", {}, element("summary", {}, `${count(total - 2)} more`), element("ul", {}, ...items.slice(2), ...more));
    return [element("ul", {}, ...items.slice(0, 2)), rest];
  }
  const spelled = (rows) => rows.map((row) => (typeof row === "number" ? urls.url[row] : row));

  const broken = data.broken;
  section("broken", broken.length, "No link to a page that failed.", () =>
    new List(
      "broken",
      ["broken link", "broken links"],
      [
        { name: "URL", ...texts((row) => broken[row][0], "url"), fill: (row) => link(broken[row][0]) },
        { name: "Reason", ...texts((row) => broken[row][1], "text fault") },
        { name: "Pages with it", ...numbers(broken.map((link) => link[2])) },
        { name: "Linked from", ...texts((row) => spelled(broken[row][3])[0] ?? "", "url"), fill: (row) => places(broken[row][2], broken[row][3]) },
      ],
      broken.length,
      (row) => [broken[row][0], broken[row][1], ...spelled(broken[row][3])],
    ),
  );

  const groups = data.duplicates;
  section("duplicates", groups.length, "No two pages with the same bytes.", () =>
    new List(
      "duplicates",
      ["group", "groups"],
      [
        { name: "Pages", ...numbers(groups.map((group) => group[0])) },
        { name: "Bytes each", ...numbers(groups.map((group) => group[1])) },
        { name: "With the same bytes", ...texts((row) => spelled(groups[row][2])[0] ?? "", "url"), fill: (row) => places(groups[row][0], groups[row][2]) },
      ],
      groups.length,
      (row) => spelled(groups[row][2]),
    ),
  );

  section("urls", urls.url.length, "No URL.", () =>
    new List(
      "urls",
      ["URL", "URLs"],
      [
        { name: "docID", ...numbers(urls.id) },
        { name: "URL", ...texts((row) => urls.url[row], "url"), fill: address },
        { name: "Title", ...texts((row) => urls.title[row], "text"), fill: (row) => (urls.title[row] ? element("bdi", {}, urls.title[row]) : "") },
        { name: "Depth", ...numbers(urls.depth) },
        { name: "Result", ...texts(end, "text") },
        { name: "Bytes", ...numbers(urls.length) },
        { name: "Type", ...texts((row) => name(data.types, urls.type[row])) },
        { name: "Charset", ...texts((row) => name(data.charsets, urls.charset[row])) },
      ],
      urls.url.length,
      (row) => [urls.url[row], data.other[row] ?? "", urls.title[row], end(row), name(data.types, urls.type[row]), name(data.charsets, urls.charset[row])],
      [
        { name: "all", accepts: () => true },
        { name: "pages", accepts: (row) => urls.id[row] !== null },
        { name: "without a page", accepts: (row) => urls.id[row] === null },
      ],
    ),
  );
}
