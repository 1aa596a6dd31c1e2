// Documents of a compaction: the working state as sections, with the turns that it names as links.

const OPENING = '[Working state';

// A document of the working state, section by section; every word of it stays text.
function documentOf(content, loop) {
  const box = el('div', {class: 'document'});
  const names = loopNames(content, loop);
  let list = null;
  for (const row of clean(content).split('\n')) {
    const item = row.startsWith('- ');
    if (!item) list = null;
    if (!row) continue;
    if (row.startsWith('## ')) box.append(el('h4', {}, ...marked(row.slice(3))));
    else if (item) {
      if (!list) box.append(list = el('ul', {}));
      list.append(el('li', {}, ...inline(row.slice(2), loop, names)));
    } else if (row.startsWith('> ')) box.append(el('blockquote', {}, ...inline(row.slice(2), loop, names)));
    else box.append(el('p', {}, ...values(row, loop, names)));
  }
  return box;
}

// What a document of several loops calls a loop.
const shortName = id => [...id.replace(/\s/gu, '')].slice(0, 12).join('').replace(/[\p{Cc}:()]/gu, '_');

// The loops that a document of several may name, by what it calls them; null: it is of one loop and names none.
// A name that two of them share says nothing.
function loopNames(content, loop) {
  const last = content.slice(content.lastIndexOf('\n') + 1);
  const isExplained = last.startsWith('Loops: ');
  if (!isExplained && !content.startsWith(`${OPENING} of the loops`)) return null;
  const known = new Map();
  for (let at = loop; index.loops[at]; at = index.loops[at].parent) {
    const name = shortName(index.loops[at].loop_id);
    known.set(name, known.has(name) ? undefined : at);
  }
  if (!isExplained) return known;
  const pairs = last.slice(7).split(', ').map(pair => pair.split(' ')).flatMap(([short, name]) => counted(short, name));
  return new Map(pairs.map(([short, name]) => [short, known.get(name)]));
}

// The names that `L1..L3 run-0..run-2` stands for; any other pair stands for itself.
function counted(short, name) {
  const ends = [short, name || ''].map(range => /^(.*?)(\d+)\.\.\1(\d+)$/su.exec(range));
  if (ends.some(hit => !hit)) return [[short, name]];
  const [shorts, names] = ends.map(([, before, first, last]) => ({before, first: Number(first), count: last - first}));
  if (shorts.count !== names.count || shorts.count < 0 || shorts.count > index.loops.length) return [[short, name]];
  return Array.from({length: shorts.count + 1}, (_, at) => [shorts, names].map(span => span.before + (span.first + at)));
}

// A line of values: their name, then each as code.
function values(row, loop, names) {
  const named = /^([^\s:][^:]*:[^:\s]*|[^\s:]+): (.+)$/.exec(row);
  if (!named || !/\((?:\S+ )?t\d+/.test(row)) return inline(row, loop, names);
  const parts = [el('b', {}, ...marked(named[1])), ': '];
  for (const [at, value] of named[2].split(', ').entries()) {
    const turns = /^(.*) (\((?:\S+ )?t\d+.*\)?)$/.exec(value);
    parts.push(at ? ', ' : '');
    if (turns) parts.push(el('code', {}, ...marked(turns[1])), ' ', ...inline(turns[2], loop, names));
    else parts.push(...inline(value, loop, names));
  }
  return parts;
}

// A text with `code` as code, and turns as links to those that the page has: `t3` of the document's own loop, or
// `NAME t3` where it names its loops.
function inline(row, loop, names) {
  const parts = [], pattern = /`([^`]+)`|(?<![\p{L}\p{N}_])(?:([^\s`(),;]+) )?t(\d+)(?![\p{L}\p{N}_])/gu;
  let from = 0;
  for (const hit of row.matchAll(pattern)) {
    const [whole, code, name, turn] = hit;
    const of = names ? names.get(name) : loop;
    const isKnown = code === undefined && index.loops[of] && Number(turn) < index.loops[of].turns.length;
    if (code === undefined && !isKnown) continue;
    const end = hit.index + whole.length;
    // In a document of one loop the word before a turn is just a word.
    const begin = isKnown && !names ? end - turn.length - 1 : hit.index;
    parts.push(...marked(row.slice(from, begin)));
    parts.push(code !== undefined ? el('code', {}, ...marked(code)) : turnLink(of, Number(turn), row.slice(begin, end)));
    from = end;
  }
  return [...parts, ...marked(row.slice(from))];
}

function turnLink(loop, turn, caption) {
  const link = el('a', {href: '#reader', title: `Show ${turnName(loop, turn)}`}, caption);
  link.addEventListener('click', event => { event.preventDefault(); showTurn(loop, turn); reveal(); });
  return link;
}
