// Opens pages in headless Chromium and prints what it found in each, as JSON: errors, requests, plots, tables, layout,
// accessibility, print. The tests judge it (crates/feedline/tests/reports.rs).
//   node scripts/browser_check.js PAGE.html...               needs playwright-core and axe-core in NODE_PATH
//   SCREENSHOTS=DIR node scripts/browser_check.js PAGE...    also takes pictures, for a look at the pages
"use strict";
const fs = require("fs");
const path = require("path");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const widths = [360, 1024, 2560];
const schemes = ["light", "dark"];
const pictures = process.env.SCREENSHOTS;

// Runs in the page: what each plot shows.
const look = () =>
  [...document.querySelectorAll("figure.plot")].map((figure) => {
    const svg = figure.querySelector(".still svg");
    const shapes = svg.querySelectorAll(".bar, .series, .cell, .span").length;
    const canvas = figure.querySelector("canvas");
    let inked = null;
    if (canvas) {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Set();
      for (let at = 0; at < data.length; at += 4) seen.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
      inked = seen.size;
    }
    const axes = [...svg.querySelectorAll("text[font-size='13']")].map((label) => label.textContent);
    const numbers = figure.querySelector("table") || figure.closest("section").querySelector("table");
    return { name: figure.dataset.plot, shapes, live: figure.classList.contains("drawn"), inked, axes, numbers: numbers !== null };
  });

const cells = () =>
  [...document.querySelectorAll("[data-key]")].map((cell) => ({
    key: cell.dataset.key,
    value: cell.dataset.value,
    text: cell.textContent,
  }));

const overflow = () => {
  const page = document.documentElement;
  const outside = (element) => element.getBoundingClientRect().right > page.clientWidth + 1;
  const hidden = (element) => element.closest(".scroll, pre, .patterns, .live") !== null;
  const wide = [...document.body.querySelectorAll("*")].filter((element) => outside(element) && !hidden(element));
  return { page: page.scrollWidth - page.clientWidth, elements: wide.slice(0, 5).map((element) => element.outerHTML.slice(0, 120)) };
};

const settle = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

const check = async (browser, file) => {
  const found = { file, errors: [], requests: [], overflow: {}, axe: {} };
  const context = await browser.newContext({ viewport: { width: 1024, height: 800 } });
  const page = await context.newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && found.errors.push(message.text()));
  page.on("pageerror", (error) => found.errors.push(String(error)));
  page.on("request", (request) => found.requests.push(request.url()));
  page.on("dialog", (dialog) => {
    found.errors.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  const address = `file://${path.resolve(file)}`;
  const start = process.hrtime.bigint();
  await page.goto(address, { waitUntil: "load" });
  await settle(page);
  found.openMs = Number((process.hrtime.bigint() - start) / 1000000n);
  found.title = await page.title();
  found.plots = await page.evaluate(look);
  found.cells = await page.evaluate(cells);
  found.text = await page.evaluate(() => document.body.innerText);
  for (const colorScheme of schemes) {
    await page.emulateMedia({ colorScheme });
    for (const width of widths) {
      await page.setViewportSize({ width, height: 900 });
      await settle(page);
      found.overflow[`${colorScheme} ${width}`] = await page.evaluate(overflow);
      if (pictures) {
        await page.screenshot({ path: path.join(pictures, `${path.basename(file)}-${colorScheme}-${width}.png`), fullPage: true });
      }
    }
    await page.setViewportSize({ width: 1024, height: 900 });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => axe.run(document));
    found.axe[colorScheme] = violations.map(({ id, impact, nodes }) => ({ id, impact, count: nodes.length, first: nodes[0].html.slice(0, 200) }));
  }
  await page.emulateMedia({ media: "print", colorScheme: "light" });
  const pdf = await page.pdf({ preferCSSPageSize: true });
  if (pictures) fs.writeFileSync(path.join(pictures, `${path.basename(file)}.pdf`), pdf);
  found.printedPages = (pdf.toString("latin1").match(/\/Type\s*\/Page[^s]/g) || []).length;
  found.requests = found.requests.filter((request) => request !== address);
  await context.close();

  const plain = await browser.newContext({ javaScriptEnabled: false });
  const still = await plain.newPage();
  await still.goto(address);
  found.withoutScript = {
    tables: await still.locator("table").count(),
    pictures: await still.locator("figure .still svg:visible").count(),
    plots: await still.locator("figure.plot").count(),
  };
  await plain.close();
  return found;
};

(async () => {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    ],
  });
  const all = [];
  for (const file of process.argv.slice(2)) all.push(await check(browser, file));
  await browser.close();
  process.stdout.write(JSON.stringify(all));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
