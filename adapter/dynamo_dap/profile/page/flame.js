"use strict";
// The flame chart: what is called is below what calls it, time runs to the right.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const editor = typeof acquireVsCodeApi === "function" ? acquireVsCodeApi() : undefined;
  const byId = (id) => document.getElementById(id);
  const chart = byId("chart");
  const ROW = 20;
  let track = data.tracks[0];
  let begin = 0;
  let end = 0;
  let chosen;

  const colorOf = (frame) => data.colors[data.frames[frame].stage];
  const time = (microseconds) =>
    microseconds >= 1e6 ? `${(microseconds / 1e6).toFixed(2)} s`
      : microseconds >= 1e3 ? `${(microseconds / 1e3).toFixed(1)} ms` : `${microseconds} µs`;

  function made(tag, text, style) {
    const element = document.createElement(tag);
    element.textContent = text;
    Object.assign(element.style, style);
    return element;
  }

  function show(from, to) {
    const span = Math.max(1, Math.min(to - from, track.end - track.begin));
    begin = Math.max(track.begin, Math.min(from, track.end - span));
    end = begin + span;
    draw();
  }

  function draw() {
    const width = chart.clientWidth || 1;
    const scale = width / (end - begin);
    const boxes = [];
    let depths = 0;
    // By depth: where the last box ended that was too narrow to be one of its own.
    const covered = [];
    track.calls.forEach(([frame, at, lasting, depth], number) => {
      depths = Math.max(depths, depth + 1);
      if (at + lasting < begin || at > end) {
        return;
      }
      const left = Math.max(0, (at - begin) * scale);
      const right = Math.min(width, (at + lasting - begin) * scale);
      if (right - left < 1 && left < (covered[depth] ?? -1)) {
        return;
      }
      covered[depth] = left + 1;
      const name = right - left > 24 ? data.frames[frame].name : "";
      const style = { left: `${left}px`, width: `${Math.max(1, right - left - 1)}px`, top: `${depth * ROW}px`, background: colorOf(frame) };
      const box = made("button", name, style);
      box.title = `${data.frames[frame].name}: ${time(lasting)}`;
      box.tabIndex = name ? 0 : -1;
      box.classList.toggle("chosen", number === chosen);
      box.classList.toggle("same", chosen !== undefined && number !== chosen && frame === track.calls[chosen][0]);
      box.addEventListener("click", () => choose(number));
      boxes.push(box);
    });
    chart.style.height = `${depths * ROW}px`;
    chart.replaceChildren(...boxes);
    drawRuler(width);
  }

  function drawRuler(width) {
    const step = 10 ** Math.floor(Math.log10((end - begin) / 4));
    const marks = [];
    for (let at = Math.ceil(begin / step) * step; at < end; at += step) {
      if (marks.length === 0 || ((at - begin) / (end - begin)) * width - parseFloat(marks.at(-1).style.left) > 70) {
        marks.push(made("span", time(at), { left: `${((at - begin) / (end - begin)) * width}px` }));
      }
    }
    byId("ruler").replaceChildren(...marks);
  }

  function choose(number) {
    chosen = number;
    const [index, , lasting] = track.calls[number];
    const frame = data.frames[index];
    const details = byId("details");
    details.replaceChildren(made("b", frame.name), made("div", `${time(lasting)} here; ${frame.calls} × in all, ${time(frame.total)}, of that ${time(frame.own)} in itself. ${frame.stage}.`));
    if (frame.path) {
      const place = made(editor ? "a" : "span", `${frame.path.split(/[\\/]/).at(-1)}:${frame.line}`);
      place.title = frame.path;
      if (editor) {
        place.addEventListener("click", () => editor.postMessage({ path: frame.path, line: frame.line }));
      }
      details.append(place);
    }
    draw();
  }

  chart.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY) && !event.altKey) {
      return; // the page is scrolled
    }
    event.preventDefault();
    const span = end - begin;
    if (event.ctrlKey || event.altKey) {
      const at = begin + (event.offsetX + (event.target === chart ? 0 : event.target.offsetLeft)) / chart.clientWidth * span;
      const factor = event.deltaY < 0 ? 0.8 : 1.25;
      show(at - (at - begin) * factor, at - (at - begin) * factor + span * factor);
    } else {
      const by = ((event.deltaX || event.deltaY) / chart.clientWidth) * span;
      show(begin + by, end + by);
    }
  }, { passive: false });

  function zoomIn() {
    if (chosen !== undefined) {
      const [, at, lasting] = track.calls[chosen];
      show(at, at + lasting);
    }
  }
  byId("in").addEventListener("click", zoomIn);
  // The first click has drawn the boxes anew, so that the second is on another element: both are on the chart.
  chart.addEventListener("dblclick", zoomIn);
  byId("whole").addEventListener("click", () => show(track.begin, track.end));
  const threads = byId("threads");
  threads.append(...data.tracks.map((one) => made("option", one.name)));
  threads.addEventListener("change", () => {
    track = data.tracks[threads.selectedIndex];
    chosen = undefined;
    show(track.begin, track.end);
  });
  window.addEventListener("resize", draw);

  const whole = data.stages.reduce((sum, [, spent]) => sum + spent, 0);
  for (const [stage, spent] of data.stages) {
    const part = made("div", "", { width: `${(100 * spent) / whole}%`, background: data.colors[stage] });
    part.title = `${stage}: ${time(spent)}`;
    byId("stages").append(part);
    const item = made("li", "");
    item.append(made("i", "", { background: data.colors[stage] }), `${stage} ${time(spent)}`);
    byId("legend").append(item);
  }
  show(track.begin, track.end);
})();
