// The conversation in one column: words as they were written, tool calls folded to a line. Every word stays text.

// A text about the conversation that is folded to a line.
function folded(name, content) {
  const first = content.trim().split('\n', 1)[0];
  return details('aside', [`${name} `, el('span', {class: 'soft'}, ...marked(line(first)))], () => text('thinking', content), content);
}

// A part that opens. What it contains is made when it opens first; it is open if what is searched for is in it.
function details(kind, caption, inner, content) {
  const box = el('details', {class: kind}, el('summary', {}, ...caption));
  let isMade = false;
  const make = () => { if (!isMade) box.append(...inner()); isMade = true; };
  box.addEventListener('toggle', () => { if (box.open) make(); });
  const isFound = words && content && content.toLowerCase().includes(words);
  if (isFound || $('open-calls').checked) { make(); box.open = true; }
  return box;
}

// The text of a result, without images and the like.
const textOf = entry => entry.b.filter(([kind]) => kind === 'text').map(([, content]) => content).join('\n');

function sizeOf(entry) {
  const content = textOf(entry);
  if (!content) return 'no output';
  const lines = content.split('\n').length - (content.endsWith('\n') ? 1 : 0);
  return `${count(lines, 'line')}, ${count(content.length, 'sign')}`;
}

// The arguments of a call by name: texts as they are, other values as JSON.
function argumentsOf(json) {
  let fields;
  try { fields = JSON.parse(json); } catch { return text('', json); }
  if (fields === null) return [];
  if (typeof fields !== 'object' || Array.isArray(fields)) return text('', typeof fields === 'string' ? fields : JSON.stringify(fields, null, 2));
  return Object.entries(fields).flatMap(([name, value]) => {
    const content = typeof value === 'string' ? value : JSON.stringify(value, null, value && typeof value === 'object' ? 2 : 0);
    const caption = el('span', {class: 'tag'}, ...marked(line(name)));
    return [caption, ...text('', content)];
  });
}

const MOST_DIFF = 400;

// The change of a file as the lines of a diff.
function diffOf({path, action, moved_from, diff}) {
  const from = moved_from ? ` from ${line(moved_from)}` : '';
  const caption = el('span', {class: 'tag'}, `${action} ${line(path) || 'the open file'}${from}`);
  if (!diff.length) return [caption];
  const kinds = {'+': 'added', '-': 'gone', '@': 'at'};
  const rows = diff.slice(0, MOST_DIFF).map(row => el('span', {class: kinds[row[0]] || ''}, ...marked(`${row[0]} ${line(row.slice(1))}\n`)));
  const more = diff.length > MOST_DIFF ? [note(`${number(diff.length - MOST_DIFF)} more lines are in the arguments.`)] : [];
  return [caption, el('pre', {class: 'diff'}, ...rows), ...more];
}

// A call, and its result if it is known; `null` where results are apart.
function callOf([id, tool, json, description, changes], result) {
  const name = line(tool);
  const about = description && description !== tool ? line(description) : '';
  const rest = about.startsWith(`${name} `) ? about.slice(name.length + 1) : about;
  const failed = result && result.e;
  const state = result === undefined ? 'no result' : result ? `${failed ? 'failed, ' : ''}${sizeOf(result)}` : '';
  // The state comes first, as it keeps its place where the line is cut.
  const tone = failed || result === undefined ? 'bad' : 'soft';
  const caption = [state ? el('span', {class: `state ${tone}`}, state) : null, el('b', {}, ...marked(name)), ' ', ...marked(rest.slice(0, 300))];
  const inner = () => [
    ...argumentsOf(json),
    ...result ? [el('span', {class: 'tag'}, failed ? 'result, failed' : 'result'), ...result.b.flatMap(part)] : [],
    el('span', {class: 'tag'}, `call ${line(id)}`),
  ];
  const box = details('call', caption.filter(Boolean), inner, json + (result ? textOf(result) : ''));
  if (failed || !changes || !changes.length) return box;
  return el('div', {}, box, ...changes.flatMap(diffOf));
}

// Markdown: headings, lists, quotes, code and stress. Any other markup stays as it is.
function markdownOf(content) {
  const box = el('div', {class: 'document markdown'});
  let list = null, code = null;
  for (const row of clean(content).split('\n')) {
    const fence = /^\s*(```+|~~~+)\s*([^`]*)$/.exec(row);
    if (code !== null) {
      const ends = fence && !fence[2].trim() && fence[1].startsWith(code.mark);
      if (ends) code = null; else code.box.append(...marked(`${row}\n`));
      continue;
    }
    if (fence) {
      code = {mark: fence[1], box: el('pre', {class: 'code'})};
      box.append(code.box);
      list = null;
      continue;
    }
    const item = /^(\s*)([-*+]|\d{1,4}[.)])\s+(.*)$/.exec(row), heading = /^(#{1,6})\s+(.*)$/.exec(row);
    if (item) {
      if (!list) box.append(list = el('ul', {class: 'marks'}));
      const mark = /\d/.test(item[2]) ? `${item[2]} ` : '• ';
      const entry = el('li', {}, mark, ...stressed(item[3]));
      entry.style.marginLeft = `${Math.min(item[1].length, 12) * .5}rem`;
      list.append(entry);
      continue;
    }
    if (row.trim()) list = null;
    else continue;
    if (heading) box.append(el('h4', {}, ...stressed(heading[2])));
    else if (row.startsWith('>')) box.append(el('blockquote', {}, ...stressed(row.replace(/^>\s?/, ''))));
    else if (/^\s*\|/.test(row)) box.append(el('pre', {class: 'code'}, ...marked(row)));
    else box.append(el('p', {}, ...stressed(row)));
  }
  return box;
}

// A line with its code and stressed words.
function stressed(row) {
  const parts = [], pattern = /`([^`]+)`|(?<![\p{L}\p{N}*])\*\*(?=\S)([^*`]+?)(?<=\S)\*\*(?![\p{L}\p{N}*])|(?<![\p{L}\p{N}*])\*(?=\S)([^*`]+?)(?<=\S)\*(?![\p{L}\p{N}*])/gu;
  let from = 0;
  for (const hit of row.matchAll(pattern)) {
    const [whole, code, strong, weak] = hit;
    parts.push(...marked(row.slice(from, hit.index)));
    parts.push(code !== undefined ? el('code', {}, ...marked(code)) : el(strong !== undefined ? 'b' : 'i', {}, ...marked(strong ?? weak)));
    from = hit.index + whole.length;
  }
  return [...parts, ...marked(row.slice(from))];
}

const SPEAKERS = {user: 'User', assistant: 'Assistant'};

// The messages of a turn, each call with its result.
function* turnOf(loop, turn, entries) {
  if (turn !== undefined) {
    const first = entries.find(entry => entry.a !== undefined);
    const head = turnLink(loop, turn, `${brief(index.loops[loop].loop_id)}:${turn}`);
    yield el('p', {class: 'turn small'}, head, first ? ` · ${time(first.a)}` : '');
  }
  const results = new Map();
  for (const entry of entries.filter(entry => entry.r === 'toolResult')) results.set(entry.i, [...(results.get(entry.i) || []), entry]);
  let speaker = null;
  for (const entry of entries) {
    if (entry.r === 'extension') continue;
    if (entry.r === 'toolResult') {
      if ((results.get(entry.i) || []).includes(entry)) yield message(entry);
      continue;
    }
    const parts = [];
    const isHarness = entry.r === 'user' && entry.n === 'harness';
    for (const block of entry.b) {
      const [kind, ...rest] = block;
      if (kind === 'call') parts.push(callOf(rest, (results.get(rest[0]) || []).shift()));
      else if (kind === 'thinking') { if (rest[0].trim()) parts.push(folded('thinking', rest[0])); }
      else if (kind === 'text' && isHarness) parts.push(folded('harness', rest[0]));
      else if (kind === 'text' && entry.r === 'assistant') parts.push(markdownOf(rest[0]));
      else parts.push(...part(block));
    }
    if (entry.x) parts.push(...text('bad', entry.x));
    if (!parts.length) continue;
    const name = isHarness ? null : `${SPEAKERS[entry.r]}${entry.r === 'user' && entry.n ? ` (${line(entry.n)})` : ''}`;
    const head = name && name !== speaker ? el('div', {class: `speaker ${entry.r}`}, name) : null;
    if (name) speaker = name;
    yield el('article', {class: 'said'}, head, ...parts);
  }
}

// The conversation from a turn of the chain to its end.
async function* conversation(loop, turn) {
  const begin = index.chain.findIndex(link => link.loop === loop);
  for (const link of index.chain.slice(Math.max(0, begin))) {
    if (!link.turns) continue;
    const [from, end] = seqs(link.loop, link.loop === loop ? turn : 0, link.turns - 1);
    let at, group = [];
    for await (const entry of messages(link.loop, from, end)) {
      if (entry.t !== at && group.length) {
        yield* turnOf(link.loop, at, group);
        group = [];
      }
      at = entry.t;
      group.push(entry);
    }
    yield* turnOf(link.loop, at, group);
  }
}

const LAST_TURNS = 5;

// Draws the conversation, and connects its buttons.
function conversations() {
  const conversed = new Stream($('conversation'));
  const readFrom = place => {
    const {loop, turn} = index.at(Math.max(0, Math.min(charts.count - 1, place)));
    conversed.show(conversation(loop, turn));
  };
  $('conversation-section').hidden = !charts.count;
  $('read-here').hidden = !charts.count;
  if (!charts.count) return;
  $('from-start').addEventListener('click', () => readFrom(0));
  $('from-end').addEventListener('click', () => readFrom(charts.count - LAST_TURNS));
  $('open-calls').addEventListener('change', () => {
    for (const call of $('conversation').querySelectorAll('details')) call.open = $('open-calls').checked;
  });
  $('read-here').addEventListener('click', () => {
    readFrom(shown && shown.place >= 0 ? shown.place : 0);
    $('conversation-section').scrollIntoView({block: 'start'});
    $('conversation').focus({preventScroll: true});
  });
  readFrom(0);
}
