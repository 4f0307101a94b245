// Draws plots over a canvas, so that a part of them can be enlarged. Without this script, the pictures stay.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const dashes = [[], [7, 3], [2, 3], [10, 3, 2, 3], [5, 2, 1, 2, 1, 2], [1, 2]];

  const duration = (seconds) => {
    if (seconds === 0) return "0 s";
    for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]]) {
      if (Math.abs(seconds) >= size) return `${+(seconds / size).toPrecision(3)} ${unit}`;
    }
    return `${+(seconds * 1e9).toPrecision(3)} ns`;
  };
  const plain = (value) => (Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : `${+value.toPrecision(4)}`);

  // Shares are placed by their distance to 1, so that the slow end has room.
  const nines = (share) => Math.min(6, -Math.log10(Math.max(1 - share, 1e-12)));
  const share = (x) => `${+(100 * (1 - Math.pow(10, -x))).toPrecision(6)} %`;

  const draw = (figure, data) => {
    const box = figure.querySelector(".live");
    box.textContent = "";
    const percentile = data.xScale === "percentile";
    const x = percentile ? data.x.map(nines) : data.x;
    const format = data.yUnit === "duration" ? duration : plain;
    const grid = { stroke: colour("--grid"), width: 1 };
    const axis = { stroke: colour("--ink"), grid, ticks: grid, font: "12px sans-serif", labelFont: "13px sans-serif" };
    const steps = uPlot.paths.stepped({ align: 1 });
    const series = data.series.map((line, number) => ({
      label: line.name || data.yLabel,
      stroke: colour(`--s${number % 6}`),
      width: 1.6,
      dash: dashes[number % dashes.length],
      paths: line.style === "Steps" ? steps : line.style === "Points" ? () => null : undefined,
      points: { show: line.style === "Marked" || line.style === "Points" || data.x.length < 3, size: 7 },
      spanGaps: true,
      value: (_, value) => (value === null || value === undefined ? "-" : format(value)),
    }));
    const marks = (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.font = `${11 * devicePixelRatio}px sans-serif`;
      ctx.textAlign = "left";
      ctx.textBaseline = "alphabetic";
      ctx.strokeStyle = ctx.fillStyle = colour("--soft");
      ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
      let free = -Infinity;
      for (const [at, name] of data.borders) {
        const left = u.valToPos(at, "x", true);
        if (left < bbox.left - 1 || left > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(left, bbox.top);
        ctx.lineTo(left, bbox.top + bbox.height);
        ctx.stroke();
        if (left > free) {
          ctx.fillText(name, left + 4, bbox.top + 11 * devicePixelRatio);
          free = left + 12 + ctx.measureText(name).width;
        }
      }
      if (data.line) {
        ctx.strokeStyle = ctx.fillStyle = colour("--alert");
        ctx.setLineDash([7 * devicePixelRatio, 4 * devicePixelRatio]);
        const top = u.valToPos(data.line.value, "y", true);
        ctx.beginPath();
        ctx.moveTo(bbox.left, top);
        ctx.lineTo(bbox.left + bbox.width, top);
        ctx.stroke();
        ctx.textAlign = "right";
        ctx.fillText(data.line.label, bbox.left + bbox.width - 4, top - 5);
      }
      ctx.restore();
    };
    const most = Math.max(data.line ? data.line.value : 0, ...data.series.flatMap((line) => line.y.filter((y) => y !== null)));
    const size = () => ({ width: Math.max(240, figure.clientWidth), height: 300 });
    const plot = new uPlot(
      {
        ...size(),
        scales: {
          x: { time: false },
          y: data.yScale === "log" ? { distr: 3, log: 10 } : { range: (_, low) => [Math.min(0, low || 0), (most || 1) * 1.05] },
        },
        axes: [
          { ...axis, label: data.xLabel, values: percentile ? (_, ticks) => ticks.map(share) : undefined,
            splits: percentile ? () => [0, 0.30103, 1, 2, 3, 4, 5, 6].filter((tick) => tick <= x[x.length - 1] + 0.01) : undefined },
          { ...axis, label: data.yLabel, size: 74, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : format(tick))) },
        ],
        series: [{ label: data.xLabel, value: (_, value) => (value === null ? "-" : percentile ? share(value) : plain(value)) }, ...series],
        hooks: { draw: [marks] },
        cursor: { drag: { x: true, y: false } },
        legend: { live: true },
      },
      [x, ...data.series.map((line) => line.y)],
      box,
    );
    plot.root.querySelectorAll("canvas").forEach((canvas) => canvas.setAttribute("aria-hidden", "true"));
    figure.classList.add("drawn");
    return { plot, size };
  };

  const start = () => {
    const drawn = [];
    for (const figure of document.querySelectorAll("figure.plot")) {
      const data = figure.querySelector("script[type='application/json']");
      if (!data || typeof uPlot === "undefined") continue;
      const parsed = JSON.parse(data.textContent);
      if (parsed.x.length === 0) continue;
      drawn.push({ figure, parsed, ...draw(figure, parsed) });
    }
    addEventListener("resize", () => drawn.forEach(({ plot, size }) => plot.setSize(size())));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const one of drawn) Object.assign(one, draw(one.figure, one.parsed));
    });
  };
  start();
})();
