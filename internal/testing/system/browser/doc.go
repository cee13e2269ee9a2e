// Package browser tests the page of package dblockweb in headless Chromium, and takes the pictures
// of it that stand in docs/pictures:
//
//	go test -run Pictures -pictures ../../../../docs/pictures .
//
// The browser is DBLOCK_TEST_CHROMIUM, or what PATH has of chromium-headless-shell, chromium,
// chromium-browser and google-chrome. Where there is none the tests are skipped, or fail if
// DBLOCK_TEST_CHROMIUM is "required".
package browser
