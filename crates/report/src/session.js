// The page of one session.

// How many signs of a text are shown before somebody asks for all of it.
const MOST_SIGNS = 6000;
const MOST_HITS = 2000;

let index, charts, seen, recorded, shown = null, words = '';

// Pieces that were read; a few, as each is some hundred kilobytes.
const pieces = new Map();
function piece(at) {
  let found = pieces.get(at);
  if (found) pieces.delete(at);
  else found = unpack(`piece-${at}`);
  pieces.set(at, found);
  if (pieces.size > 24) pieces.delete(pieces.keys().next().value);
  return found;
}

// The messages of a loop from one sequence up to another.
async function* messages(loop, from, end) {
  const places = index.loops[loop].pieces;
  for (let at = 0; at < places.length; at++) {
    const next = at + 1 < places.length ? places[at + 1][0] : Infinity;
    if (next <= from || places[at][0] >= end) continue;
    for (const entry of await piece(places[at][1])) {
      if (entry.l === loop && entry.q >= from && entry.q < end) yield entry;
    }
  }
}

// The sequences of the turns `first` to `last` of a loop; what stands before turn 0 belongs to it.
function seqs(loop, first, last) {
  const {turns, end} = index.loops[loop];
  return [first > 0 && turns[first] ? turns[first][0] : 0, turns[last + 1] ? turns[last + 1][0] : end];
}

async function ofBlock(block) {
  return (await piece(index.blocks[block].piece)).find(entry => entry.g === block);
}

// ---- messages

function text(kind, content) {
  const box = el('pre', {class: kind});
  const put = most => {
    const whole = clean(content.slice(0, most));
    box.replaceChildren(...marked(whole));
  };
  put(MOST_SIGNS);
  if (content.length <= MOST_SIGNS) return [box];
  const more = el('button', {type: 'button'}, `Show all ${number(content.length)} signs`);
  more.addEventListener('click', () => { put(Infinity); more.remove(); });
  return [box, more];
}

// The text with what is searched for marked.
function marked(content) {
  if (!words) return [content];
  const parts = [], low = content.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(words); at >= 0 && parts.length < 400; at = low.indexOf(words, from)) {
    parts.push(content.slice(from, at), el('mark', {}, content.slice(at, at + words.length)));
    from = at + words.length;
  }
  return [...parts, content.slice(from)];
}

function part([kind, ...rest]) {
  if (kind === 'text') return text('', rest[0]);
  if (kind === 'thinking') return [el('span', {class: 'tag'}, 'thinking'), ...text('thinking', rest[0])];
  if (kind === 'injected') return [folded('harness', rest[0])];
  if (kind === 'call') return [callOf(rest, null)];
  if (kind === 'image') return [el('span', {class: 'tag'}, `image, ${line(rest[0])}, ${count(rest[1], 'byte')}`)];
  if (kind === 'sealed') return [el('span', {class: 'tag'}, `(${rest[0]})`), ...rest[1] ? text('thinking', rest[1]) : []];
  return text('', rest[0]);
}

const ROLES = {user: 'user', assistant: 'assistant', toolResult: 'result', extension: 'note'};

// With a loop it is a summary of turns of that loop.
function message(entry, isHere, loop) {
  const head = [el('b', {}, ROLES[entry.r] || entry.r)];
  if (entry.n) head.push(entry.r === 'toolResult' ? ' of ' : ' ', el('span', {}, ...marked(line(entry.n))));
  if (entry.e || entry.x) head.push(' ', el('b', {class: 'bad'}, 'failed'));
  const more = [entry.t !== undefined && `turn ${entry.t}`, entry.a !== undefined && time(entry.a), count(entry.k, 'token')];
  if (entry.u) more.push(`reported ${short(entry.u.input || 0)} in, ${short(entry.u.output || 0)} out`);
  head.push(` · ${more.filter(Boolean).join(' · ')}`);
  const box = el('article', {class: isHere ? 'message here' : 'message'}, el('div', {class: 'head'}, ...head));
  if (entry.x) box.append(...text('bad', entry.x));
  for (const block of entry.b) {
    const isDocument = loop !== undefined && block[0] === 'text' && block[1].startsWith(OPENING);
    box.append(...isDocument ? [documentOf(block[1], loop)] : part(block));
  }
  return box;
}

const note = content => el('p', {class: 'small'}, content);

// ---- what is shown beside each other

// What stands for the turns: a block, and of a turn that was cut the messages in its place.
async function* standing({block, state, loop, first, last, is_block}) {
  if (!is_block && (state === 'edited' || state === 'removed')) return yield* editedTurn(block, loop, first, last);
  if (block === null || block === undefined) {
    yield note(state === 'left_out' ? 'Nothing: the context does not reach back to this loop.' : 'The originals: no compaction covers them.');
    return;
  }
  const {summary, replaced} = await blockSays(block, loop, first, last, is_block);
  if (state === 'kept' || state === 'raw') {
    yield note(state === 'raw' ? 'The originals: they came after what the block covers.' : 'The originals, word for word.');
    return;
  }
  if (state === 'dropped' && !is_block) yield note('Nothing of this turn. What its block says of others:');
  if (state !== 'truncated') for (const entry of summary) yield message(entry, false, index.blocks[block].loop);
  if (state !== 'truncated' && !summary.length) yield note('Nothing: the block has no summary.');
  if (replaced.length) yield note(state === 'truncated' ? 'The originals, but for these messages:' : `${count(replaced.length, 'message')} in shorter form:`);
  for (const [seq, entry] of replaced) yield entry ? message(entry) : note(`message ${seq}: dropped`);
}

// The edits of a message that are live in the displayed context, oldest first.
const editsAt = entry => (index.edits.get(entry.l) || []).filter(edit => edit.from <= entry.q && entry.q <= edit.to);

// A message as contexts show it with its edits; null if nothing of it is shown.
function edited(entry, own) {
  if (own.some(edit => edit.part === null)) return null;
  const parts = entry.b.map((block, at) => {
    const edits = own.filter(edit => edit.part === at);
    if (edits.some(edit => edit.action === 'removed')) return null;
    if (!edits.length) return block;
    const {text} = edits[edits.length - 1];
    return block[0] === 'call' ? ['call', block[1], block[2], text] : ['text', text];
  }).filter(Boolean);
  return parts.length ? {...entry, b: parts} : null;
}

// Says what an edit did, in which run and why.
function editNote({action, part, run}) {
  const what = part === null ? 'The message was' : `Part ${part} was`;
  return note(`${what} ${action} by run ${line(run.run_id)}${run.reason ? `: ${line(run.reason)}` : '.'}`);
}

async function* editedTurn(block, loop, first, last) {
  const {replaced} = block === null ? {replaced: []} : await blockSays(block, loop, first, last, false);
  const [from, end] = seqs(loop, first, last), cut = new Map(replaced);
  for await (const entry of messages(loop, from, end)) {
    const own = editsAt(entry);
    for (const edit of own) yield editNote(edit);
    const form = own.length ? edited(entry, own) : cut.has(entry.q) ? cut.get(entry.q) : entry;
    if (form && entry.r !== 'extension') yield message(form);
  }
}

async function blockSays(block, loop, first, last, isBlock) {
  const content = await ofBlock(block);
  const [from, end] = seqs(loop, first, last);
  const isHere = ([seq]) => isBlock || (index.blocks[block].loop === loop && seq >= from && seq < end);
  return {summary: content.m, replaced: content.p.filter(isHere)};
}

async function* originals(ranges, here) {
  for (const [loop, first, last] of ranges) {
    if (ranges.length > 1) yield el('h4', {class: 'small'}, `loop ${line(index.loops[loop].loop_id)}`);
    const [from, end] = seqs(loop, first, last);
    for await (const entry of messages(loop, from, end)) yield message(entry, entry.q === here);
  }
}

function put(what, caption) {
  shown = what;
  $('reader-what').textContent = caption;
  seen.show(standing(what));
  recorded.show(originals(what.ranges, what.here));
  $('earlier').disabled = !(what.place > 0);
  $('later').disabled = !(what.place >= 0 && what.place + 1 < charts.count);
  $('whole').disabled = what.is_block || what.block === null || what.block === undefined;
  if (what.place >= 0) charts.mark(what.place, what.until === undefined ? what.place : what.until);
}

function reveal() {
  $('reader').scrollIntoView({block: 'nearest'});
  $('reader').focus({preventScroll: true});
}

// A long id in a place without room.
const brief = id => id.length > 20 ? `${line(id.slice(0, 12))}…` : line(id);
const turnName = (loop, turn) => `loop ${line(index.loops[loop].loop_id)}, turn ${turn}`;

// Shows a turn of any loop.
function showTurn(loop, turn, here) {
  const place = index.placeOf(loop, turn);
  const known = place >= 0 ? index.at(place) : {block: null, state: 'raw'};
  const {block, state} = known, caption = place >= 0 ? STATES[state][0] : 'not on the way to the current context';
  const beyond = state === 'raw' ? null : block;
  put({place, loop, first: turn, last: turn, block: beyond, state, ranges: [[loop, turn, turn]], here}, `${turnName(loop, turn)}: ${caption}`);
}

// Shows a block, and all that its summary stands for.
function showBlock(at) {
  const block = index.blocks[at], {loop} = block;
  const [first, last] = block.compacted || block.recent || block.first || [0, 0];
  let ranges = [[loop, first, last]];
  let place = index.placeOf(loop, first);
  if (block.kind === 'rollup') {
    const depth = index.chain.findIndex(link => link.loop === loop);
    ranges = [...index.chain.slice(0, Math.max(0, depth)).filter(link => link.turns > 0).map(link => [link.loop, 0, link.turns - 1]), ...ranges];
    if (depth >= 0) place = 0;
  }
  const until = index.placeOf(loop, last);
  const sections = [['first', block.first], ['compacted', block.compacted], ['recent', block.recent]];
  const caption = sections.filter(([, turns]) => turns).map(([name, [a, b]]) => `${name} ${a}–${b}`).join(', ') || 'no turns';
  put({place, until: Math.max(place, until), loop, first, last, block: at, is_block: true, state: 'summarised', ranges},
    `Block ${block.generation} of loop ${line(index.loops[loop].loop_id)} (${block.kind}, ${block.is_active ? 'active' : 'inactive'}): ${caption}; ${number(block.tokens)} of ${number(block.tokens_covered)} tokens`);
}

function showLoop(loop) {
  const {turns} = index.loops[loop], last = Math.max(0, turns.length - 1);
  const link = index.chain.find(link => link.loop === loop);
  const place = link && link.turns > 0 ? index.placeOf(loop, 0) : -1;
  const block = link ? link.block : null;
  put({place, until: place < 0 ? undefined : place + link.turns - 1, loop, first: 0, last, block, is_block: block !== null, state: block === null ? 'raw' : 'summarised', ranges: [[loop, 0, last]]},
    `Loop ${line(index.loops[loop].loop_id)}: ${count(turns.length, 'turn')}`);
}

function pickTurn(place, whole) {
  const {loop, turn, block, state} = index.at(place);
  if (whole && block !== null && state !== 'raw') showBlock(block);
  else showTurn(loop, turn);
}

// ---- the parts of the page

// Gives the index what is asked of it often.
function prepare() {
  const states = [], begins = new Map(), starts = [];
  for (const link of index.chain) {
    begins.set(link.loop, states.length);
    starts.push(states.length);
    for (const [word, turns] of link.states) for (let turn = 0; turn < turns; turn++) states.push(word);
  }
  index.states = states;
  index.edits = new Map();
  for (const run of [...index.runs].reverse().filter(run => run.is_shown)) {
    for (const edit of run.edits) (index.edits.get(edit.loop) || index.edits.set(edit.loop, []).get(edit.loop)).push({...edit, run});
  }
  index.placeOf = (loop, turn) => {
    const link = index.chain.find(link => link.loop === loop);
    return link && turn < link.turns ? begins.get(loop) + turn : -1;
  };
  index.at = place => {
    let low = 0, high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= place) low = middle; else high = middle - 1;
    }
    while (low > 0 && starts[low] > place) low--;
    const link = index.chain[low];
    return {loop: link.loop, turn: place - starts[low], block: link.block, state: states[place], link};
  };
}

function head() {
  const {session, loops, calls, usage} = index;
  const title = session.title || session.session_id;
  document.title = `${line(title)} · loopstore`;
  $('title').textContent = line(title);
  const about = [
    `session ${line(session.session_id)}`, session.agent_id && `agent ${line(session.agent_id)}`, session.source && `from ${line(session.source)}`,
    session.created_at && `${time(session.created_at)} to ${time(session.last_active_at)} UTC`,
    session.project && `in ${line(session.project)}`,
    session.prompt && session.prompt !== title && `first asked “${line(session.prompt)}”`,
  ];
  $('about').textContent = about.filter(Boolean).join(' · ');
  const sum = what => loops.reduce((total, loop) => total + what(loop), 0);
  fact('loops', number(loops.length));
  fact('turns', number(sum(loop => loop.turns.length)));
  fact('messages', number(sum(loop => loop.messages)));
  fact('tokens recorded', number(sum(loop => loop.tokens)));
  fact('tokens in context', number(index.context.tokens));
  const committed = isEdit => index.runs.filter(run => run.outcome === 'committed' && (run.trigger === 'edit') === isEdit).length;
  fact('compactions', number(committed(false)));
  if (committed(true)) fact('runs of edits', number(committed(true)));
  fact('tool calls', `${number(calls.calls.length)}${calls.calls.some(call => call.e) ? `, ${number(calls.calls.filter(call => call.e).length)} failed` : ''}`);
  if (usage.is_priced) fact('cost', money(usage.tree.total.cost));
  if (index.overview) {
    $('crumb').hidden = false;
    $('overview').setAttribute('href', index.overview);
  }
  $('made').textContent = `Made by loopstore ${index.version} on ${time(index.made_at)} UTC.`;
}

function timeline() {
  const runs = new Map(index.runs.map(run => [run.run_id, run]));
  const words = {compacted: 'compacted', edited: 'edited', undone: 'undone', redone: 'redone'};
  const changes = index.curve.changes.map(change => ({
    ...change,
    caption: `${words[change.change]}: ${number(change.before)} → ${number(change.after)} tokens`,
  }));
  const budgets = [];
  for (const change of changes) {
    const {budget} = runs.get(change.run_id) || {};
    if (change.change !== 'compacted' || !budget) continue;
    if (!budgets.length || budgets[budgets.length - 1].budget !== budget) budgets.push({from: change.at, budget});
  }
  const loops = index.chain.map(link => {
    const from = index.placeOf(link.loop, 0);
    return {from, to: from + link.turns, label: brief(index.loops[link.loop].loop_id)};
  }).filter(loop => loop.from >= 0);
  const {tokens} = index.curve;
  const peak = tokens.reduce((a, b) => Math.max(a, b), 0);
  const summary = tokens.length
    ? `The context grew to at most ${number(peak)} tokens over ${count(tokens.length, 'turn')}; after ${count(changes.length, 'change')} by compactions, edits, undos and redos it has ${number(index.context.tokens)}.`
    : 'The session has no turns yet.';
  $('curve-note').textContent = summary + (budgets.length && budgets.every(line => line.budget > 1.6 * peak) ? ` The budget of ${number(budgets[0].budget)} lies above the picture.` : '');
  const caption = place => {
    const {loop, turn, state} = index.at(place);
    return `${turnName(loop, turn)}: ${STATES[state][0]} · ${count(index.loops[loop].turns[turn][1], 'token')} recorded · context then ${number(tokens[place])}`;
  };
  charts = new Charts({now: index.context.tokens, states: index.states, tokens, changes, budgets, loops, summary, caption}, pickTurn);
  legend();
}

function legend() {
  const counts = {};
  for (const state of index.states) counts[state] = (counts[state] || 0) + 1;
  for (const [state, [name, caption, tall]] of Object.entries(STATES)) {
    if (!counts[state]) continue;
    $('legend').append(el('li', {title: caption},
      svg('svg', {class: state, viewBox: '0 0 14 18', 'aria-hidden': 'true'}, svg('rect', {x: 0, y: 18 - 18 * tall, width: 14, height: 18 * tall})),
      `${name} `, el('span', {class: 'small'}, `${count(counts[state], 'turn')}, ${caption}`)));
  }
}

// The loops as a tree, each with its blocks and the sessions that it started. A line of loops that
// go on from each other stays on one level; other ways on are indented under the loop they leave.
function treeRows() {
  const children = index.loops.map(() => []), roots = [], onChain = new Set(index.chain.map(link => link.loop));
  index.loops.forEach((loop, at) => (loop.parent === null ? roots : children[loop.parent]).push(at));
  const blocks = index.loops.map(() => []), agents = new Map();
  index.blocks.forEach((block, at) => blocks[block.loop].push(at));
  for (const child of index.usage.tree.children) agents.set(child.from_loop_id, [...(agents.get(child.from_loop_id) || []), child]);
  const rows = [], open = roots.map(loop => [loop, 0]).reverse();
  while (open.length) {
    const [loop, level] = open.pop();
    rows.push({loop, level, isOn: onChain.has(loop)});
    for (const block of blocks[loop]) rows.push({block, level: level + 1});
    for (const agent of agents.get(index.loops[loop].loop_id) || []) rows.push({agent, level: level + 1});
    const last = index.loops[loop].turns.length - 1;
    const goesOn = child => onChain.has(child) || (index.loops[child].parent_turn ?? -1) >= last;
    const straight = children[loop].find(child => onChain.has(child)) ?? children[loop].findLast(goesOn);
    if (straight !== undefined) open.push([straight, level]);
    for (const child of children[loop].filter(child => child !== straight).reverse()) open.push([child, level + 1]);
  }
  const known = new Set(index.loops.map(loop => loop.loop_id));
  for (const agent of index.usage.tree.children.filter(child => !known.has(child.from_loop_id))) rows.push({agent, level: 0});
  return rows;
}

function kindOf(kind) {
  if (typeof kind === 'string') return kind === 'Default' ? '' : kind.toLowerCase();
  const [name, content] = Object.entries(kind || {})[0] || [''];
  return `${name.toLowerCase()} ${content && content.tag ? content.tag : ''}`.trim();
}

function tree() {
  const rows = treeRows();
  const draw = at => {
    const row = rows[at];
    const attributes = {'aria-level': row.level + 1}, pad = '  '.repeat(Math.min(row.level, 10));
    if (row.loop !== undefined) {
      const loop = index.loops[row.loop];
      const more = [kindOf(loop.kind), loop.parent_turn !== null && row.level > 0 && `after ${loop.parent_seq === null ? '' : `message ${loop.parent_seq} of `}turn ${loop.parent_turn}`, count(loop.turns.length, 'turn'), count(loop.tokens, 'token'), loop.status.toLowerCase()];
      return {attributes, children: [`${pad}${row.isOn ? '●' : '○'} `, el('b', {}, line(loop.loop_id)), el('span', {class: 'soft'}, `  ${line(more.filter(Boolean).join(' · '))}`), loop.prompt ? `  ${line(loop.prompt)}` : '']};
    }
    if (row.agent) {
      const {agent} = row;
      const name = line(agent.title || agent.session_id);
      const link = agent.file ? el('a', {href: agent.file, tabindex: -1}, name) : name;
      return {attributes, children: [`${pad}◇ sub-agent `, link, el('span', {class: 'soft'}, `  ${agent.tool ? line(agent.tool) + ' · ' : ''}${number(agent.total.total)} tokens reported`)]};
    }
    const block = index.blocks[row.block];
    const state = block.is_active ? 'active' : 'inactive';
    return {attributes, children: [`${pad}▪ block ${block.generation}`, el('span', {class: 'soft'}, `  ${block.kind}, ${state} · ${number(block.tokens)} of ${number(block.tokens_covered)} tokens · ${line(block.strategy)}`)]};
  };
  const open = at => {
    const row = rows[at];
    if (row.agent) { if (row.agent.file) location.href = row.agent.file; return; }
    if (row.loop !== undefined) showLoop(row.loop); else showBlock(row.block);
    reveal();
  };
  new List($('tree'), 'tree', 'Loops with their blocks and sub-agents', open).set(rows.length, draw);
}

function runs() {
  if (!index.runs.length) {
    $('runs').append(note('There were none: the context holds everything as it was recorded.'));
    return;
  }
  const blocksOf = at => index.blocks.map((block, place) => [block, place]).filter(([block]) => block.run === at);
  const rows = index.runs.map((run, at) => {
    const removed = run.before.tokens - run.after.tokens;
    const covered = {}, actions = {};
    const blocks = blocksOf(at);
    for (const [block] of blocks) for (const [word, turns] of block.coverage) covered[word] = (covered[word] || 0) + turns;
    const buttons = blocks.map(([block, place]) => {
      const button = el('button', {type: 'button'}, `${brief(index.loops[block.loop].loop_id)} #${block.generation}`);
      button.addEventListener('click', () => { showBlock(place); reveal(); });
      return button;
    });
    for (const edit of run.edits.filter(edit => edit.loop !== null).slice(0, 10)) {
      const turn = Math.max(0, index.loops[edit.loop].turns.findLastIndex(([seq]) => seq <= edit.from));
      const button = el('button', {type: 'button'}, `${brief(index.loops[edit.loop].loop_id)}:${turn}:${edit.from}`);
      button.addEventListener('click', () => { showTurn(edit.loop, turn, edit.from); reveal(); });
      buttons.push(button);
    }
    for (const edit of run.edits) actions[edit.action] = (actions[edit.action] || 0) + 1;
    const content = [run.outcome.replace('_', ' '), run.reason && line(run.reason), run.fallback && `fallback ${line(run.fallback)}`, run.error && line(run.error)];
    return [
      el('span', {title: run.events.map(event => `${line(event.type)} ${time(event.timestamp)}`).join('\n')}, time(run.started_at)), line(run.strategy), content.filter(Boolean).join('; '),
      number(run.before.tokens), number(run.after.tokens),
      run.outcome === 'committed' ? `${number(removed)} (${percent(removed, run.before.tokens)})` : '',
      [...Object.entries(covered).map(([word, turns]) => `${STATES[word][0]} ${number(turns)}`), ...Object.entries(actions).map(([word, edits]) => `${count(edits, 'edit')} (${word})`)].join(', '),
      run.duration_ms ? duration(run.duration_ms) : '', el('span', {}, ...buttons.flatMap(button => [button, ' '])),
    ];
  });
  $('runs').append(table(`${count(rows.length, 'attempt')}, newest first; tokens and turns are those of the moment`, [
    ['when (UTC)', 'time'], ['strategy', ''], ['outcome', 'text'], ['tokens before', 'number'], ['after', 'number'], ['removed', 'number'], ['turns', 'text'], ['took', 'number'], ['blocks and edits', 'text'],
  ], rows.slice(0, 500)));
  if (rows.length > 500) $('runs').append(note(`${number(rows.length - 500)} older attempts are not listed.`));
}

function tools() {
  const {tools, calls} = index.calls;
  if (!calls.length) {
    $('tools').append(note('There are no tool calls.'));
    $('calls').hidden = true;
    $('only-failed').closest('p').hidden = true;
    return;
  }
  const sums = tools.map(name => ({name, calls: 0, failed: 0, open: 0, times: []}));
  for (const call of calls) {
    const sum = sums[call.n];
    sum.calls++;
    if (call.e) sum.failed++;
    if (!call.r) sum.open++;
    if (call.d !== undefined) sum.times.push(call.d);
  }
  const rows = sums.sort((a, b) => b.calls - a.calls).map(({name, calls, failed, open, times}) => {
    times.sort((a, b) => a - b);
    const all = times.reduce((a, b) => a + b, 0);
    const took = times.length ? [duration(all), duration(times[times.length >> 1]), duration(times[times.length - 1])] : ['–', '–', '–'];
    return [line(name), calls, failed ? el('span', {class: 'bad'}, `${number(failed)} (${percent(failed, calls)})`) : '0', open, ...took];
  });
  $('tools').append(table('From the call to its result, where both times are known', [
    ['tool', 'text'], ['calls', 'number'], ['failed', 'number'], ['no result', 'number'], ['time in all', 'number'], ['median', 'number'], ['longest', 'number'],
  ], rows));
  let listed = calls;
  const draw = at => {
    const call = listed[at];
    const state = !call.r ? el('b', {class: 'bad'}, 'no result') : call.e ? el('b', {class: 'bad'}, 'failed') : 'ok';
    const took = call.d === undefined ? '' : ` · ${duration(call.d)}`;
    return {attributes: {}, children: [el('b', {}, line(tools[call.n])), '  ', state, el('span', {class: 'soft'}, `${took} · loop ${line(index.loops[call.l].loop_id)}, turn ${call.t ?? '–'}`)]};
  };
  const list = new List($('calls'), 'listbox', 'Tool calls', at => {
    const call = listed[at];
    showTurn(call.l, call.t || 0, call.q);
    reveal();
  });
  const put = () => {
    listed = $('only-failed').checked ? calls.filter(call => call.e || !call.r) : calls;
    list.set(listed.length, draw);
  };
  $('only-failed').addEventListener('change', put);
  put();
}

function usage() {
  const {models, tree, is_priced} = index.usage;
  const columns = [['model', 'text'], ['input', 'number'], ['output', 'number'], ['cache read', 'number'], ['cache write', 'number'], ['reasoning', 'number'], ['total', 'number']];
  if (is_priced) columns.push(['cost', 'number']);
  const row = (name, spent) => {
    const cells = [name, spent.input, spent.output, spent.cache_read, spent.cache_write, spent.reasoning, spent.total];
    return is_priced ? [...cells, money(spent.cost)] : cells;
  };
  if (!models.length && !tree.children.length) {
    $('usage').append(note('No answer says what it used.'));
    return;
  }
  const rows = models.map(model => row(line(model.model || 'no model named'), model));
  if (models.length > 1) rows.push(row('all models', tree.own));
  if (tree.children.length) rows.push(row('with sub-agents', tree.total));
  $('usage').append(table('Tokens as providers reported them', columns, rows));
  if (tree.children.length) $('agents').append(el('h3', {}, 'Sub-agents'), agents(tree.children, is_priced));
}

function agents(children, isPriced) {
  return el('ul', {class: 'agents'}, ...children.slice(0, 500).map(child => {
    const name = line(child.title || child.session_id);
    const link = child.file ? el('a', {href: child.file}, name) : name;
    const cost = isPriced ? `, cost ${money(child.total.cost)}` : '';
    const caption = ` · ${line(child.session_id)} · ${number(child.total.total)} tokens reported${cost}`;
    return el('li', {}, link, el('span', {class: 'small'}, caption), child.children.length ? agents(child.children, isPriced) : null);
  }));
}

// ---- search

async function* found(wanted) {
  for (let at = 0; $(`piece-${at}`); at++) {
    // Searched pieces do not push out those that are shown.
    const entries = pieces.has(at) ? await pieces.get(at) : await unpack(`piece-${at}`);
    for (const entry of entries) {
      for (const content of entry.g === undefined ? [entry] : entry.m) {
        const hit = hitIn(content, wanted);
        if (hit) yield {entry, content, ...hit};
      }
    }
    yield null;
  }
}

function hitIn(entry, wanted) {
  const texts = [entry.n, ...entry.b.flatMap(([, ...rest]) => rest)].filter(value => typeof value === 'string');
  for (const text of texts) {
    const at = text.toLowerCase().indexOf(wanted);
    if (at >= 0) return {text, at};
  }
  return null;
}

function search() {
  let turn = 0, hits = [];
  const open = at => {
    const {entry} = hits[at];
    if (entry.g !== undefined) showBlock(entry.g);
    else showTurn(entry.l, entry.t || 0, entry.q);
    reveal();
  };
  const list = new List($('hits'), 'listbox', 'Messages found', open);
  const draw = at => {
    const {entry, content, text, at: from} = hits[at];
    const place = entry.g !== undefined ? `summary of block ${index.blocks[entry.g].generation}, loop ${line(index.loops[index.blocks[entry.g].loop].loop_id)}` : `${turnName(entry.l, entry.t ?? '–')}, ${ROLES[content.r]}`;
    const begin = Math.max(0, from - 40);
    return {attributes: {}, children: [
      el('span', {class: 'soft'}, `${place}: `), begin ? '…' : '', line(text.slice(begin, from)),
      el('mark', {}, line(text.slice(from, from + words.length))), line(text.slice(from + words.length, from + words.length + 160)),
    ]};
  };
  const run = async () => {
    const own = ++turn;
    words = $('find').value.toLowerCase();
    hits = [];
    $('results').hidden = !words;
    $('found').textContent = '';
    if (!words) return;
    let drawn = 0;
    const caption = end => {
      list.count !== hits.length && list.at < 0 && list.set(hits.length, draw);
      $('found').textContent = `${count(hits.length, 'message')}${hits.length >= MOST_HITS ? ' and more' : ''}${end ? '' : ' …'}`;
    };
    for await (const hit of found(words)) {
      if (own !== turn) return;
      if (hit) hits.push(hit);
      else if (performance.now() - drawn > 150) { drawn = performance.now(); caption(false); }
      if (hits.length >= MOST_HITS) break;
    }
    list.set(hits.length, draw);
    caption(true);
  };
  let waiting;
  $('find').addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(run, 200); });
  $('search').addEventListener('submit', event => {
    event.preventDefault();
    clearTimeout(waiting);
    run().then(() => { if (hits.length) $('hits').focus(); });
  });
}

start(page => {
  index = page;
  prepare();
  seen = new Stream($('seen'));
  recorded = new Stream($('recorded'));
  head();
  timeline();
  tree();
  runs();
  tools();
  usage();
  search();
  const step = by => () => { if (shown && shown.place >= 0) pickTurn(shown.place + by, false); };
  $('earlier').addEventListener('click', step(-1));
  $('later').addEventListener('click', () => { if (shown && shown.place >= 0) pickTurn((shown.until ?? shown.place) + 1, false); });
  $('whole').addEventListener('click', () => { if (shown && shown.block !== null) showBlock(shown.block); });
  conversations();
  const covered = index.states.findIndex(state => state === 'summarised' || state === 'rolled_up');
  if (charts.count) pickTurn(Math.max(0, covered), covered >= 0);
  else if (index.loops.length) showLoop(0);
  else $('reader').hidden = true;
});
