'use strict';
// What both pages use: elements, numbers, and reading the data that stands in the page. Text from
// outside only ever becomes text nodes and attributes that cannot run.

const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const plain = new Intl.NumberFormat('en-US');
const number = value => plain.format(value);
const count = (value, one) => `${number(value)} ${one}${value === 1 ? '' : 's'}`;
const percent = (part, whole) => whole > 0 ? `${Math.round(part * 100 / whole)} %` : '–';
const short = value => value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e3 ? `${+(value / 1e3).toFixed(1)}k` : `${value}`;
const money = value => value >= 1 || value === 0 ? value.toFixed(2) : value.toFixed(4);

function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60000);
  if (minutes < 60) return `${minutes} min ${Math.round(ms % 60000 / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function time(value) {
  if (value === null || value === undefined) return '';
  const at = new Date(value);
  return isNaN(at) ? clean(String(value)) : at.toISOString().slice(0, 19).replace('T', ' ');
}

// Control characters, and those that turn the direction of text, as signs that can be seen.
function clean(text) {
  return String(text).replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, sign => {
    const code = sign.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? '\u2421' : `\\u{${code.toString(16)}}`;
  });
}
const line = text => clean(text).replace(/\n/g, '\u23ce').replace(/\t/g, ' ');

// Reads a piece of data: base64 of deflated JSON.
async function unpack(id) {
  const packed = $(id).textContent;
  const bytes = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(packed)
    : Uint8Array.from(atob(packed), sign => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).json();
}

function fact(name, value) {
  $('facts').append(el('div', {}, el('dt', {}, name), el('dd', {}, value)));
}

// A table: columns are [name, class], rows arrays of texts or nodes.
function table(caption, columns, rows) {
  const cell = (value, at) => el('td', {class: columns[at][1]}, typeof value === 'number' ? number(value) : value);
  return el('table', {},
    caption && el('caption', {}, caption),
    el('thead', {}, el('tr', {}, ...columns.map(([name, kind]) => el('th', {scope: 'col', class: kind}, name)))),
    el('tbody', {}, ...rows.map(row => el('tr', {}, ...row.map(cell)))));
}

function start(page) {
  const failed = error => {
    $('problem').hidden = false;
    $('problem').textContent = typeof DecompressionStream === 'undefined'
      ? 'This browser is too old for this page: it has no DecompressionStream.'
      : `The report cannot be shown: ${error}`;
  };
  unpack('index').then(page).catch(failed);
}
