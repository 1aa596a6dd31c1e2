// The curve of the context and the ribbon of what became of each turn, on one axis: turn `n` of the
// chain lies between n and n + 1.

const STATES = {
  raw: ['raw', 'as recorded, no compaction covers it', 1],
  kept: ['kept', 'word for word', 1],
  edited: ['edited', 'a part of it was removed, cleared or replaced', .85],
  truncated: ['truncated', 'long outputs cut', .75],
  summarised: ['summarised', 'a summary says something of it', .5],
  rolled_up: ['rolled up', 'went into the summary of all older loops', .32],
  dropped: ['dropped', 'nothing of it is shown', .14],
  removed: ['removed', 'edits removed all of it', .1],
  sealed: ['sealed', 'only the provider that compacted it can read it', .32],
  left_out: ['left out', 'before the loops that the context reaches back to', .06],
};
const MARGIN = {left: 46, right: 64};
// What comes after the last turn: the size that the context has now.
const AFTER = 12;

class Charts {
  constructor(timeline, pick) {
    Object.assign(this, {timeline, pick, at: 0});
    this.curve = $('curve');
    this.ribbon = $('ribbon');
    // Drawn in the next frame: a change of size within the observer would call it again.
    const redraw = new ResizeObserver(() => requestAnimationFrame(() => this.draw()));
    redraw.observe(this.curve);
    addEventListener('beforeprint', () => this.draw());
    for (const box of [this.curve, this.ribbon]) {
      box.addEventListener('click', event => this.pick(this.turnAt(event), false));
      box.addEventListener('pointermove', event => this.point(this.turnAt(event)));
      box.addEventListener('pointerleave', () => this.point(this.at));
    }
    this.ribbon.addEventListener('keydown', event => this.key(event));
    this.draw();
  }

  get count() { return this.timeline.states.length; }
  x(turn) { return MARGIN.left + turn * this.width / Math.max(1, this.count); }

  turnAt(event) {
    const left = this.ribbon.getBoundingClientRect().left + MARGIN.left;
    const turn = Math.floor((event.clientX - left) * this.count / this.width);
    return Math.min(this.count - 1, Math.max(0, turn));
  }

  key(event) {
    const {states} = this.timeline;
    const edge = step => {
      let to = this.at;
      while (to + step >= 0 && to + step < this.count && states[to + step] === states[this.at]) to += step;
      return to + step;
    };
    const moves = {
      ArrowRight: () => this.at + 1, ArrowUp: () => this.at + 1, ArrowLeft: () => this.at - 1,
      ArrowDown: () => this.at - 1, Home: () => 0, End: () => this.count - 1,
      PageDown: () => edge(1), PageUp: () => edge(-1),
    };
    if (moves[event.key]) {
      this.at = Math.min(this.count - 1, Math.max(0, moves[event.key]()));
      this.point(this.at);
    } else if (event.key === 'Enter' || event.key === ' ') {
      this.pick(this.at, false);
    } else if (event.key === 'b' || event.key === 'B') {
      this.pick(this.at, true);
    } else {
      return;
    }
    event.preventDefault();
  }

  // Says which turn is under the pointer or the keyboard's cursor.
  point(turn) {
    if (!this.count) return;
    const content = this.timeline.caption(turn);
    fill(this.ribbon, {'aria-valuemin': 0, 'aria-valuemax': this.count - 1, 'aria-valuenow': turn, 'aria-valuetext': content}, []);
    $('ribbon-now').textContent = content;
    for (const cursor of document.querySelectorAll('.chart .cursor')) {
      fill(cursor, {x1: this.x(turn + .5), x2: this.x(turn + .5)}, []);
    }
  }

  // Marks the turns that are shown below.
  mark(first, last) {
    this.picked = [first, last];
    this.at = first;
    this.frame();
    this.point(first);
  }

  frame() {
    const pick = this.ribbon.querySelector('.pick');
    if (!pick || !this.picked) return;
    const [first, last] = this.picked;
    fill(pick, {x: this.x(first) - 1, width: Math.max(3, this.x(last + 1) - this.x(first)) + 2}, []);
  }

  draw() {
    this.width = Math.max(60, this.curve.clientWidth - MARGIN.left - MARGIN.right);
    if (!this.count) return;
    this.drawCurve();
    this.drawRibbon();
    this.frame();
    this.point(this.at);
  }

  drawCurve() {
    const {tokens, changes, budgets} = this.timeline;
    const height = 220, base = height - 22, top = 18;
    const peak = Math.max(1, ...this.highs());
    const inView = budgets.filter(line => line.budget <= 1.6 * peak);
    const most = Math.max(peak, ...inView.map(line => line.budget)) * 1.04;
    const y = value => base - value / most * (base - top);
    const picture = svg('svg', {viewBox: `0 0 ${this.width + MARGIN.left + MARGIN.right} ${height}`, height, role: 'img', 'aria-label': this.timeline.summary});
    for (const value of steps(most)) {
      picture.append(
        svg('line', {class: 'grid', x1: MARGIN.left, x2: this.x(this.count), y1: y(value), y2: y(value)}),
        svg('text', {x: MARGIN.left - 6, y: y(value) + 4, 'text-anchor': 'end'}, short(value)));
    }
    const points = thin(this.points(tokens, changes).map(([turn, value]) => [this.x(turn), y(value)]));
    const [[endX, endY]] = points.slice(-1);
    points.push([endX + AFTER, endY]);
    const path = points.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join('L');
    picture.append(
      svg('path', {class: 'area', d: `M${this.x(0)},${base}L${path}L${endX + AFTER},${base}Z`}),
      svg('path', {class: 'curve', d: `M${path}`}));
    const last = this.timeline.now;
    picture.append(svg('text', {class: 'now-label', x: endX + AFTER + 4, y: endY + 4}, short(last)));
    this.drawBudget(picture, inView, y);
    this.drawDrops(picture, changes, y);
    this.drawAxis(picture, base);
    picture.append(svg('line', {class: 'cursor', x1: -9, x2: -9, y1: top, y2: base}));
    this.curve.replaceChildren(picture);
  }

  highs() {
    const {tokens, changes} = this.timeline;
    let most = 0;
    for (const value of tokens) most = Math.max(most, value);
    for (const change of changes) most = Math.max(most, change.before, change.after);
    return [most];
  }

  // The size at the end of each turn; where something changed between two turns, before and after.
  points(tokens, changes) {
    const points = [[0, changes.length && changes[0].at === 0 ? changes[0].before : 0]];
    let next = 0;
    for (let turn = 0; turn <= tokens.length; turn++) {
      for (; next < changes.length && changes[next].at === turn; next++) {
        points.push([turn, changes[next].before], [turn, changes[next].after]);
      }
      if (turn < tokens.length) points.push([turn + 1, tokens[turn]]);
    }
    return points;
  }

  drawBudget(picture, lines, y) {
    lines.forEach((line, at) => {
      const end = at + 1 < lines.length ? lines[at + 1].from : this.count;
      const begin = at === 0 ? 0 : line.from;
      picture.append(svg('line', {class: 'budget', x1: this.x(begin), x2: this.x(end), y1: y(line.budget), y2: y(line.budget)}));
      if (at === 0) picture.append(svg('text', {x: this.x(begin) + 4, y: y(line.budget) - 5}, `budget ${number(line.budget)}`));
    });
  }

  drawDrops(picture, changes, y) {
    let free = -Infinity;
    for (const change of changes) {
      const x = this.x(change.at);
      picture.append(svg('line', {class: 'drop', x1: x, x2: x, y1: y(change.before), y2: y(change.after)},
        svg('title', {}, change.caption)));
      const label = `${change.after <= change.before ? '−' : '+'}${short(Math.abs(change.before - change.after))}`;
      const isLate = x > MARGIN.left + this.width - 60;
      if (x < free) continue;
      free = x + label.length * 7 + 14;
      picture.append(svg('text', {class: 'drop-label', x: isLate ? x - 6 : x + 6, y: (y(change.before) + y(change.after)) / 2 + 4, 'text-anchor': isLate ? 'end' : 'start'}, label));
    }
  }

  drawAxis(picture, base) {
    const most = Math.max(2, Math.floor(this.width / 110));
    const step = nice(this.count / most);
    for (let turn = 0; turn < this.count; turn += Math.max(1, step)) {
      picture.append(svg('text', {x: this.x(turn), y: base + 16, 'text-anchor': turn ? 'middle' : 'start'}, turn ? number(turn) : 'turn 0'));
    }
  }

  drawRibbon() {
    const height = 54, band = 36;
    const picture = svg('svg', {viewBox: `0 0 ${this.width + MARGIN.left + MARGIN.right} ${height}`, height, 'aria-hidden': 'true'});
    for (const [first, last, state] of this.bands()) {
      const tall = Math.max(2, band * STATES[state][2]);
      picture.append(svg('rect', {class: `state ${state}`, x: this.x(first), y: band - tall, width: Math.max(.6, this.x(last + 1) - this.x(first)), height: tall}));
    }
    picture.append(svg('line', {class: 'grid', x1: MARGIN.left, x2: this.x(this.count), y1: band + .5, y2: band + .5}));
    let free = -Infinity;
    for (const begin of this.timeline.loops) {
      const x = this.x(begin.from);
      if (this.timeline.loops.length < this.width / 4) picture.append(svg('line', {class: 'grid', x1: x, x2: x, y1: band, y2: band + 5}));
      const room = this.x(begin.to) - x;
      const fits = Math.floor(room / 7) - 1;
      if (x < free || fits < Math.min(8, begin.label.length)) continue;
      const label = begin.label.length <= fits ? begin.label : `${begin.label.slice(0, fits - 1)}…`;
      free = x + label.length * 7 + 6;
      picture.append(svg('text', {x: x + 2, y: band + 16}, label));
    }
    picture.append(svg('rect', {class: 'pick', x: -9, y: -1, width: 0, height: band + 2, rx: 2}),
      svg('line', {class: 'cursor', x1: -9, x2: -9, y1: 0, y2: band}));
    this.ribbon.replaceChildren(picture);
  }

  // Neighbours of one state together; where a pixel holds many turns, the state of most of them.
  bands() {
    const {states} = this.timeline;
    const each = Math.max(1, Math.floor(this.count / (this.width * 2)));
    const bands = [];
    for (let turn = 0; turn < this.count; turn += each) {
      const last = Math.min(this.count, turn + each) - 1;
      const state = each === 1 ? states[turn] : common(states, turn, last);
      const before = bands[bands.length - 1];
      if (before && before[2] === state) before[1] = last;
      else bands.push([turn, last, state]);
    }
    return bands;
  }
}

function common(states, first, last) {
  const counts = {};
  for (let turn = first; turn <= last; turn++) counts[states[turn]] = (counts[states[turn]] || 0) + 1;
  return Object.keys(counts).reduce((a, b) => counts[b] > counts[a] ? b : a);
}

function nice(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= value);
}

function steps(most) {
  const step = nice(most / 4), values = [];
  for (let value = 0; value <= most; value += step) values.push(value);
  return values;
}

// Of the points on one pixel only the first, the lowest, the highest and the last.
function thin(points) {
  const kept = [];
  for (let at = 0; at < points.length;) {
    const pixel = Math.round(points[at][0]);
    let end = at, low = at, high = at;
    while (end + 1 < points.length && Math.round(points[end + 1][0]) === pixel) {
      end++;
      if (points[end][1] > points[low][1]) low = end;
      if (points[end][1] < points[high][1]) high = end;
    }
    for (const point of [...new Set([at, low, high, end])].sort((a, b) => a - b)) kept.push(points[point]);
    at = end + 1;
  }
  return kept;
}
