/** What the page of a tensor consists of; its script fills it. */

export const TENSOR_PAGE = `
<header>
  <span id="name"></span><span id="text"></span><span id="note"></span><span id="stop"></span>
  <label>Minus <input type="text" id="minus" placeholder="another tensor" title="An expression: what is shown is the difference from it"></label>
  <span id="problem" role="alert"></span>
</header>
<main>
  <section id="elements">
    <h2 id="table-title">Elements</h2>
    <div id="selection"></div>
    <div id="scroller" tabindex="0" role="grid" aria-labelledby="table-title" aria-activedescendant="active-cell"><div id="sizer"><div id="window"><table id="cells" role="presentation"></table></div></div></div>
    <div id="cell" aria-live="polite"></div>
  </section>
  <div id="side">
    <section><h2>Statistics</h2><div id="statistics"></div></section>
    <section>
      <div class="heading"><h2>Histogram</h2><label><input type="checkbox" id="logarithmic"> logarithmic</label></div>
      <div id="histogram" role="img"></div>
    </section>
    <section id="picture-section">
      <div class="heading"><h2>Picture</h2><select id="kind" aria-label="Kind of picture"></select></div>
      <div id="picture"></div><div id="legend"></div><p id="picture-note"></p>
    </section>
  </div>
</main>`;
