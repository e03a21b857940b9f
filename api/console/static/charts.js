// Time charts: stacked bars with uPlot, coloured by the theme, redrawn when either changes.
"use strict";
(() => {
  const levels = ["--l1", "--l2", "--l3", "--l4", "--l5"];
  const lanes = ["--lane-1", "--lane-3", "--lane-4", "--lane-2", "--l4", "--lane-5"];
  const drawn = new WeakMap();
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function legend(element, series, colours) {
    const list = document.createElement("ul");
    list.className = "legend";
    series.forEach(({ name, values }, number) => {
      if (!values.some(Boolean)) return;
      const item = document.createElement("li");
      const swatch = document.createElement("i");
      swatch.style.background = css(colours[number % colours.length]);
      item.append(swatch, name);
      list.prepend(item);
    });
    element.append(list);
  }

  function tip(element, data, series, local) {
    const box = document.createElement("div");
    box.className = "tip";
    box.hidden = true;
    element.append(box);
    return (plot) => {
      const { idx } = plot.cursor;
      box.hidden = idx == null;
      if (idx == null) return;
      const date = new Date(data.times[idx] * 1000);
      const when = local ? date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;
      const lines = series.filter(({ values }) => values[idx]).map(({ name, values }) => `${name}  ${values[idx]}`).reverse();
      box.textContent = [when, ...(lines.length ? lines : ["none"])].join("\n");
      const left = plot.valToPos(data.times[idx], "x") + plot.over.offsetLeft;
      box.style.left = `${Math.min(left + 14, element.clientWidth - box.offsetWidth - 4)}px`;
    };
  }

  function draw(element) {
    const text = element.dataset.chart;
    const known = drawn.get(element);
    const look = `${document.documentElement.dataset.theme} ${document.documentElement.dataset.zone}`;
    if (known && known.text === text && known.look === look && known.width === element.clientWidth && element.firstChild) return;
    known?.plot.destroy();
    element.replaceChildren();
    const data = JSON.parse(text);
    if (!data.times.length) return;
    const colours = element.dataset.colours === "levels" ? levels : lanes;
    const local = document.documentElement.dataset.zone === "local";
    const sums = data.times.map(() => 0);
    const stacks = data.series.map(({ values }) => values.map((value, place) => (sums[place] += value)));
    const bars = window.uPlot.paths.bars({ size: [0.82, 40], align: 1, gap: 1 });
    // The highest stack first: each lower one is painted over it.
    const order = data.series.map((_, number) => number).reverse();
    const axis = { stroke: css("--ink-3"), font: "11px Inter, sans-serif", grid: { stroke: css("--line"), width: 1 }, ticks: { show: false } };
    const end = data.times[data.times.length - 1] + data.step;
    const plot = new window.uPlot({
      width: element.clientWidth,
      height: Number(element.dataset.height || 180),
      padding: [8, 18, 0, 0],
      legend: { show: false },
      tzDate: (seconds) => (local ? new Date(seconds * 1000) : window.uPlot.tzDate(new Date(seconds * 1000), "UTC")),
      cursor: { y: false, points: { show: false }, drag: { x: Boolean(element.dataset.brush), y: false, setScale: false } },
      scales: { x: { time: true, range: [data.times[0], end] }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.08] } },
      series: [{}, ...order.map((number) => ({ fill: css(colours[number % colours.length]), stroke: css("--panel"), width: 0, paths: bars, points: { show: false } }))],
      axes: [
        { ...axis, grid: { show: false }, size: 26, values: (_, ticks, __, ___, step) => ticks.map((tick) => label(tick, step, local)) },
        { ...axis, size: 42, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? short(tick) : "")) },
      ],
      hooks: {
        setCursor: [tip(element, data, data.series, local)],
        setSelect: [(u) => choose(element, u, data)],
      },
    }, [data.times, ...order.map((number) => stacks[number])], element);
    legend(element, data.series, colours);
    drawn.set(element, { plot, text, look, width: element.clientWidth });
  }

  function label(seconds, step, local) {
    const date = new Date(seconds * 1000);
    const zone = local ? undefined : "UTC";
    const midnight = local ? date.getHours() + date.getMinutes() === 0 : date.getUTCHours() + date.getUTCMinutes() === 0;
    if (step >= 86400 || midnight) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: zone });
    return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined, timeZone: zone });
  }
  const short = (n) => (n >= 1e6 ? `${n / 1e6}M` : n >= 1e3 ? `${n / 1e3}k` : String(n));

  function choose(element, plot, data) {
    if (!element.dataset.brush || plot.select.width < 4) return;
    const iso = (position) => new Date(Math.round(plot.posToVal(position, "x")) * 1000).toISOString().slice(0, 19) + "Z";
    const url = new URL(location.href);
    url.searchParams.set("since", iso(plot.select.left));
    url.searchParams.set("until", iso(plot.select.left + plot.select.width));
    url.searchParams.delete("cursor");
    location.href = url.href;
  }

  const all = () => document.querySelectorAll("[data-chart]").forEach(draw);
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(all, 150); });
  document.addEventListener("headgate:look", all);
  document.addEventListener("htmx:afterSettle", all);
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", all);
  else all();
})();
