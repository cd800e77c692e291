package testscripts

import (
	"bytes"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBenchPage measures one service of each kind side by side, and looks at the page that
// bench writes with a real browser.
func TestBenchPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, shot := filepath.Join(dir, "page.html"), filepath.Join(dir, "page.png")
	args := []string{"bench", "--duration", "200ms", "--clients", "2", "--workload", "uncontended,contention", "--html", page}
	services := 0
	for _, b := range backends {
		if slices.Contains([]string{"file", "redis", "zookeeper", "consul", "mysql"}, b.name) {
			services++
			args = append(args, "-b", b.start(t)(dir, 1))
		}
	}
	out, err := exec.Command(filepath.Join(binDir, "dlock"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), ": 0 overlaps and 0 fence regressions"); n != services || services != 5 {
		t.Errorf("%d of %d services are found sound, want 5 of 5\n%s", n, services, out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, outside := range []string{"<script", "src=", "href=", "url("} {
		if bytes.Contains(text, []byte(outside)) {
			t.Errorf("the page is not self-contained: it has %s", outside)
		}
	}
	dom := browse(t, dir, "--dump-dom", "file://"+page)
	if n := strings.Count(dom, "</svg>"); n != 2 {
		t.Errorf("%d charts, want 2\n%s", n, dom)
	}
	browse(t, dir, "--window-size=1000,1200", "--screenshot="+shot, "file://"+page)
	// A chart that was drawn has the colour of its line; a page without one has not.
	if n := pixels(t, shot, 0x00, 0x72, 0xb2); n < 200 {
		t.Errorf("%d pixels of the first line's colour", n)
	}
}

func browse(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("chromium", append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + dir + "/profile"}, args...)...)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v; to install it: apt-get install chromium", err)
	}
	return string(out)
}

// pixels counts those of one colour in a picture.
func pixels(t *testing.T, path string, r, g, b uint32) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			pr, pg, pb, _ := picture.At(x, y).RGBA()
			if pr>>8 == r && pg>>8 == g && pb>>8 == b {
				n++
			}
		}
	}
	return n
}
