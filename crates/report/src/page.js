
'use strict';
(() => {
const all = (what, within = document) => [...within.querySelectorAll(what)];

// the table: sorted by a click on a heading, filtered by status and text
const body = document.querySelector('#all tbody');
const rows = all('tr', body);
const headings = all('#all thead th');
const figure = text => parseFloat(text.replace('−', '-').replace(/,/g, ''));
const key = (row, i, numeric) => {
  const text = row.cells[i].textContent;
  return numeric ? figure(text) : text.toLowerCase();
};
const isMissing = k => k === '' || k === '–' || Number.isNaN(k);
const sort = (i, down) => {
  const numeric = headings[i].classList.contains('n');
  const keyed = rows.map(row => [key(row, i, numeric), row]);
  keyed.sort(([a], [b]) => {
    // what is missing comes last, whichever way
    if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
  });
  body.append(...keyed.map(k => k[1]));
  headings.forEach((h, j) => j === i ? h.setAttribute('aria-sort', down ? 'descending' : 'ascending') : h.removeAttribute('aria-sort'));
};
headings.forEach((heading, i) => {
  const button = document.createElement('button');
  button.type = 'button';
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener('click', () => sort(i, heading.getAttribute('aria-sort') === 'ascending'));
});
headings[0]?.setAttribute('aria-sort', 'ascending');

const form = document.querySelector('#all form');
form.hidden = false;
const [select, input, output] = ['select', 'input', 'output'].map(what => form.querySelector(what));
const words = rows.map(row => [...row.cells].filter(c => !c.classList.contains('n')).map(c => c.textContent).join('\n').toLowerCase());
const filter = () => {
  const text = input.value.toLowerCase();
  let shown = 0;
  rows.forEach((row, i) => {
    row.hidden = !((!select.value || row.cells[1].textContent === select.value) && words[i].includes(text));
    shown += !row.hidden;
  });
  output.textContent = `${shown.toLocaleString('en')} of ${rows.length.toLocaleString('en')}`;
};
form.addEventListener('input', filter);
form.addEventListener('submit', event => event.preventDefault());
if (select.value || input.value) filter(); // a browser restores them

// a link to a trial opens its part
const reveal = () => {
  const part = document.getElementById(location.hash.slice(1));
  const details = part?.closest('details');
  if (details) {
    details.open = true;
    details.scrollIntoView();
  }
};
addEventListener('hashchange', reveal);
// the same link once more
document.addEventListener('click', event => {
  const link = event.target.closest('a[href^="#t"]');
  if (link && link.hash === location.hash) reveal();
});

// code gets its colours when it is opened
const colour = details => all('pre.diff code', details).forEach(code => {
  let file = code.previousElementSibling;
  while (file && !file.dataset.l) file = file.previousElementSibling;
  if (!file || code.dataset.done) return;
  code.dataset.done = '1';
  const painted = text => {
    const line = document.createElement('span');
    line.innerHTML = hljs.highlight(text.slice(1), {language: file.dataset.l, ignoreIllegals: true}).value;
    return [text.slice(0, 1), ...line.childNodes];
  };
  [...code.childNodes].forEach(node => {
    if (node.nodeType === Node.TEXT_NODE) {
      node.replaceWith(...node.data.split(/(?<=\n)/).flatMap(painted));
    } else {
      node.replaceChildren(...painted(node.textContent));
    }
  });
});
document.addEventListener('toggle', event => event.target.open && colour(event.target), true);
all('details[open]').forEach(colour);

// loss curves: ticked ones are shown, each in a colour of its own
const most = 8;
const picks = all('.pick input');
const drawings = all('.losses');
const slot = label => [...label.classList].find(c => /^c\d$/.test(c));
const apart = 15;
const place = drawing => {
  const texts = all('.curve:not([hidden])', drawing).map(g => [+g.dataset.y, g.querySelector('text')]).sort((a, b) => a[0] - b[0]);
  let free = +drawing.dataset.top;
  texts.forEach(t => { t[0] = Math.max(t[0], free); free = t[0] + apart; });
  let limit = +drawing.dataset.bottom;
  texts.reverse().forEach(t => { t[0] = Math.min(t[0], limit); limit = t[0] - apart; t[1].setAttribute('y', t[0] + 4); });
};
const limit = () => {
  const full = picks.filter(p => p.checked).length >= most;
  picks.forEach(p => { p.disabled = full && !p.checked; });
};
picks.forEach(pick => {
  pick.checked = pick.defaultChecked;
  pick.addEventListener('change', () => {
    const label = pick.closest('label');
    if (pick.checked) {
      const used = picks.map(p => slot(p.closest('label')));
      label.classList.add(Array.from({length: most}, (_, i) => `c${i}`).find(c => !used.includes(c)));
    }
    drawings.forEach(drawing => {
      const curve = drawing.querySelector(`.curve[data-t="${pick.value}"]`);
      curve.classList.toggle(slot(label), pick.checked);
      curve.toggleAttribute('hidden', !pick.checked);
      place(drawing);
    });
    if (!pick.checked) label.classList.remove(slot(label));
    limit();
  });
});
limit();
if (location.hash) reveal();
})();
