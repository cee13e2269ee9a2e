package browser

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var pictures = flag.String("pictures", "", "the folder into which TestPictures writes")

// largest is how many bytes a picture may have.
const largest = 120_000

func TestPictures(t *testing.T) {
	url := serve(t, dblockweb.HandlerOf(newScene(""), dblockweb.Authorize(everything)))
	for _, p := range []struct {
		file, page, scheme string
		width, height      int64
	}{
		{"overview-light.png", "", "light", 1100, 660},
		{"overview-dark.png", "", "dark", 1100, 660},
		{"lock-light.png", "lock?name=orders%2f4711", "light", 1100, 780},
		{"lock-dark.png", "lock?name=orders%2f4711", "dark", 1100, 780},
		{"lock-400.png", "lock?name=orders%2f4711", "light", 400, 860},
		{"jobs-light.png", "jobs", "light", 1100, 330},
		{"overview-400.png", "", "dark", 400, 860},
	} {
		t.Run(p.file, func(t *testing.T) {
			x := newTab(t, p.width, p.height)
			x.scheme(p.scheme)
			x.open(url + p.page)
			png, err := chromedp.Run(x.ctx, chromedp.CaptureScreenshot())
			require.NoError(t, err)
			if len(png) < 5000 || len(png) > largest {
				t.Errorf("%d bytes", len(png))
			}
			if *pictures == "" {
				return
			}
			assert.NoError(t, os.WriteFile(filepath.Join(*pictures, p.file), png, 0o644))
		})
	}
}

// scheme has pages be light or dark.
func (x *tab) scheme(is string) {
	x.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
		Value: is}}}
	require.NoError(x, require.ErrOf(chromedp.Call(x.ctx, emulation.SetEmulatedMedia, media)))
}
