// The page of recorded compactions: what they forgot, what was done again, and what would have been kept.

const MOST_SHOWN = 200, MOST_LINES = 100;
const NAMES = {recorded: 'the recorded summary', 'with-handback': 'it and what is handed back'};
const KINDS = ['files', 'changes', 'plan', 'failures', 'running', 'prompts'];
const LOST = {files: 'file', plan: 'plan', failures: 'failed command', running: 'still running'};
const AGAIN = {read: 'read again', command: 'run again'};

const name = result => NAMES[result.candidate] || `loopstore’s ${line(result.candidate)}`;
const sum = (all, what) => all.reduce((total, one) => total + what(one), 0);
const of = (all, kind) => all.filter(one => one.kind === kind);
const tokensOf = all => sum(all, one => one.tokens);

function stated(result) {
  return KINDS.map(kind => {
    const figure = result.state[kind];
    return figure ? percent(figure.stated, figure.facts) : '–';
  });
}

// The first of a list, and how many more there are.
function listed(caption, columns, rows) {
  if (!rows.length) return null;
  const box = el('div', {class: 'wide'}, table(caption, columns, rows.slice(0, MOST_LINES)));
  if (rows.length > MOST_LINES) box.append(el('p', {class: 'small'}, `${number(rows.length - MOST_LINES)} more; --json has them all.`));
  return box;
}

function detail(one, at) {
  const [recorded] = one.results;
  const title = `${line(one.session_id)}: ${number(one.originals)} tokens became ${number(recorded ? recorded.tokens : 0)}`;
  return el('section', {id: `c${at}`},
    el('h2', {}, title),
    el('p', {class: 'small'}, `Run ${line(one.run_id)}. ${one.needed ? `${count(one.needed, 'value')} needed afterwards; ${one.results.map(result => `${name(result)} holds ${number(result.kept)}`).join(', ')}.` : 'Nothing of it was needed afterwards.'}`),
    listed('Needed afterwards, and gone', [['value', 'text'], ['handed back', '']], one.forgotten.map(value => [line(value.value), value.handed_back ? 'yes' : 'no'])),
    listed('Of the work, stated nowhere', [['kind', ''], ['what', 'text']], one.lost.map(fact => [LOST[fact.kind] || fact.kind, line(fact.what)])),
    listed('Done again though nothing had changed', [['how', ''], ['what', 'text'], ['tokens', 'number']], one.again.map(call => [AGAIN[call.kind] || call.kind, line(call.what), call.tokens])),
    one.handback ? el('details', {}, el('summary', {}, 'What loopstore hands back beside the summary'), el('div', {class: 'message'}, el('pre', {}, clean(one.handback)))) : null);
}

start(report => {
  document.title = 'What the compactions forgot · loopstore';
  $('made').textContent = `Made by loopstore ${report.version} on ${time(report.made_at)} UTC.`;
  const all = report.compactions;
  const sessions = new Set(all.map(one => one.session_id)).size;
  const again = all.flatMap(one => one.again);
  $('about').textContent = `${count(all.length, 'compaction')} of ${count(sessions, 'session')}, as the transcripts record them. A value is needed if a later tool call takes it from what was compacted.`;
  fact('values needed', number(report.needed));
  for (const result of report.results) fact(`held by ${name(result)}`, percent(result.kept, report.needed));
  fact('files read again', number(of(again, 'read').length));
  fact('commands run again', number(of(again, 'command').length));
  fact('tokens that cost', number(tokensOf(again)));
  $('texts').append(table('What each text holds of the work until then, of all compactions',
    [['text', 'text'], ['tokens', 'number'], ['needed values', 'number'], ...KINDS.map(kind => [kind, 'number'])],
    report.results.map(result => [name(result), result.tokens, percent(result.kept, report.needed), ...stated(result)])));
  $('all').append(table('',
    [['session', 'text'], ['tokens before', 'number'], ['summary', 'number'], ['needed', 'number'], ['gone', 'number'], ['read again', 'number'], ['run again', 'number'], ['tokens', 'number']],
    all.map((one, at) => {
      const session = at < MOST_SHOWN ? el('a', {href: `#c${at}`}, line(one.session_id)) : line(one.session_id);
      return [session, one.originals, one.results.length ? one.results[0].tokens : 0, one.needed, one.forgotten.length,
        of(one.again, 'read').length, of(one.again, 'command').length, tokensOf(one.again)];
    })));
  $('details').append(...all.slice(0, MOST_SHOWN).map(detail));
});
