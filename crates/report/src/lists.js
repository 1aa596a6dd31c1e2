// Lists of which only the rows in sight are drawn.

const ROW = 28;

// A list of rows of one height. `draw(at)` returns what a row shows and may set attributes;
// `open(at)` is what Enter or a click does.
class List {
  constructor(box, role, label, open) {
    this.box = box;
    this.space = el('div');
    this.rowRole = role === 'tree' ? 'treeitem' : 'option';
    this.open = open;
    this.count = 0;
    this.at = -1;
    fill(box, {role, tabindex: 0, 'aria-label': label}, [this.space]);
    box.addEventListener('scroll', () => this.paint());
    box.addEventListener('keydown', event => this.key(event));
    box.addEventListener('click', event => {
      const row = event.target.closest('.row');
      if (row && !event.target.closest('a')) this.choose(+row.dataset.at, true);
    });
    addEventListener('resize', () => this.paint());
    addEventListener('beforeprint', () => this.paint(400));
    addEventListener('afterprint', () => this.paint());
  }

  set(count, draw) {
    Object.assign(this, {count, draw, at: -1});
    this.box.removeAttribute('aria-activedescendant');
    this.space.style.height = `${Math.max(count, 1) * ROW}px`;
    this.box.scrollTop = 0;
    this.paint();
  }

  paint(most) {
    if (!this.draw) return;
    const first = most ? 0 : Math.max(0, Math.floor(this.box.scrollTop / ROW) - 4);
    const shown = most || Math.ceil((this.box.clientHeight || 400) / ROW) + 8;
    const rows = [];
    for (let at = first; at < Math.min(this.count, first + shown); at++) rows.push(this.row(at));
    this.space.replaceChildren(...rows);
  }

  row(at) {
    const {attributes, children} = this.draw(at);
    const row = el('div', {
      class: 'row', role: this.rowRole, id: `${this.box.id}-${at}`, 'data-at': at,
      'aria-setsize': this.count, 'aria-posinset': at + 1, 'aria-selected': at === this.at, ...attributes,
    }, ...children);
    row.style.top = `${at * ROW}px`;
    return row;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const to = {
      ArrowDown: this.at + 1, ArrowUp: this.at - 1, PageDown: this.at + page, PageUp: this.at - page,
      Home: 0, End: this.count - 1,
    }[event.key];
    if (to !== undefined) {
      this.choose(Math.min(this.count - 1, Math.max(0, to)), false);
    } else if ((event.key === 'Enter' || event.key === ' ') && this.at >= 0) {
      this.open(this.at);
    } else {
      return;
    }
    event.preventDefault();
  }

  choose(at, open) {
    if (at < 0 || at >= this.count) return;
    this.at = at;
    const top = at * ROW, box = this.box;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    this.paint();
    box.setAttribute('aria-activedescendant', `${box.id}-${at}`);
    if (open) this.open(at);
  }
}

// Messages of any height, drawn as the reader comes near their end. `source` is an async iterator
// of elements; another call ends the one before.
class Stream {
  constructor(box) {
    this.box = box;
    this.turn = 0;
  }

  async show(source) {
    const turn = ++this.turn;
    const end = el('div', {class: 'end'});
    this.box.replaceChildren(end);
    this.box.scrollTop = 0;
    this.box.setAttribute('aria-busy', 'true');
    for await (const node of source) {
      if (turn !== this.turn) return;
      end.before(node);
      while (this.isFull(end)) {
        this.box.setAttribute('aria-busy', 'false');
        await new Promise(wake => this.box.addEventListener('scroll', wake, {once: true}));
        if (turn !== this.turn) return;
      }
    }
    this.box.setAttribute('aria-busy', 'false');
  }

  isFull(end) {
    return end.offsetTop - this.box.offsetTop > this.box.scrollTop + 2 * this.box.clientHeight;
  }
}
