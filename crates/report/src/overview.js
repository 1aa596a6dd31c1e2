// The page that lists all sessions.

const COLUMNS = [
  ['session', 'text', row => (row.title || row.session_id).toLowerCase()],
  ['last active (UTC)', 'time', row => row.last_active_at || ''],
  ['source', '', row => row.source || ''],
  ['loops', 'number', row => row.loops],
  ['turns', 'number', row => row.turns],
  ['messages', 'number', row => row.messages],
  ['tokens', 'number', row => row.tokens],
  ['in context', 'number', row => row.context],
  ['compactions', 'number', row => row.compactions],
  ['tool calls', 'number', row => row.calls],
  ['failed', 'number', row => row.failed],
  ['cost', 'number', row => row.cost === null ? -1 : row.cost],
];

function cells(row) {
  const name = el('td', {class: 'text'}, el('a', {href: row.file}, line(row.title || row.session_id)),
    row.title || row.project ? el('div', {class: 'soft'}, [row.title && row.session_id, row.project].filter(Boolean).map(line).join(' · ')) : null);
  const rest = [time(row.last_active_at), line(row.source || ''), row.loops, row.turns, row.messages, row.tokens, row.context,
    row.compactions, row.calls, row.failed, row.cost === null ? '–' : money(row.cost)];
  return [name, ...rest.map((value, at) => el('td', {class: COLUMNS[at + 1][1]}, typeof value === 'number' ? number(value) : value))];
}

start(index => {
  document.title = `Sessions of ${line(index.database)} · loopstore`;
  $('about').textContent = line(index.database);
  $('made').textContent = `Made by loopstore ${index.version} on ${time(index.made_at)} UTC.`;
  const sum = what => index.sessions.reduce((total, row) => total + (row[what] || 0), 0);
  fact('sessions', number(index.sessions.length));
  for (const what of ['loops', 'turns', 'messages', 'tokens', 'compactions']) fact(what, number(sum(what)));
  const costs = index.sessions.some(row => row.cost !== null);
  const columns = costs ? COLUMNS : COLUMNS.slice(0, -1);
  const body = el('tbody');
  let by = 1, isUp = false;
  const heads = columns.map(([name, kind], at) => {
    const button = el('button', {type: 'button'}, name);
    button.addEventListener('click', () => { isUp = by === at ? !isUp : kind !== 'number'; by = at; put(); });
    return el('th', {scope: 'col', class: kind}, button);
  });
  const put = () => {
    const wanted = $('find').value.toLowerCase();
    const fits = row => [row.session_id, row.title, row.project, row.source].some(text => (text || '').toLowerCase().includes(wanted));
    const key = columns[by][2];
    const rows = index.sessions.filter(fits).sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (isUp ? 1 : -1));
    heads.forEach((head, at) => head.setAttribute('aria-sort', at !== by ? 'none' : isUp ? 'ascending' : 'descending'));
    body.replaceChildren(...rows.slice(0, 2000).map(row => el('tr', {}, ...cells(row).slice(0, columns.length))));
    $('found').textContent = wanted ? count(rows.length, 'session') : '';
    if (rows.length > 2000) body.append(el('tr', {}, el('td', {colspan: columns.length}, `${number(rows.length - 2000)} more; search for them above.`)));
  };
  $('sessions').append(el('table', {}, el('thead', {}, el('tr', {}, ...heads)), body));
  $('find').addEventListener('input', put);
  $('search').addEventListener('submit', event => event.preventDefault());
  put();
});
