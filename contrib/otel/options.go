package dblockotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option configures Observer and Watch. A nil Option changes nothing.
type Option func(*config)

type config struct {
	meters     metric.MeterProvider
	tracers    trace.TracerProvider
	attributes []attribute.KeyValue
	group      func(name string) string // nil: no names in metrics
	spanNames  bool
}

// WithMeterProvider sets the provider of the meters. Default: the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) {
		if p != nil {
			c.meters = p
		}
	}
}

// WithTracerProvider sets the provider of the tracers. Default: the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) {
		if p != nil {
			c.tracers = p
		}
	}
}

// WithAttributes adds attributes to every metric and every span, for instance to distinguish
// several clients of a process. Default: none.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) { c.attributes = append(c.attributes, attributes...) }
}

// WithNamesInMetrics adds dblock.lock.name to the metrics of acquires, holds and losses, with the
// result of group for the name of a lock. group MUST return few different texts, since each is a
// time series of its own: for instance the part of the name before the first slash. Default: no
// names.
func WithNamesInMetrics(group func(name string) string) Option {
	return func(c *config) { c.group = group }
}

// WithNamesInSpans adds dblock.lock.name, the name of the lock, to spans. It also adds the text of
// the error, which has the name in it, to the status of spans that failed. Default: no names.
func WithNamesInSpans() Option { return func(c *config) { c.spanNames = true } }

func newConfig(options []Option) config {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, o := range options {
		if o != nil {
			o(&c)
		}
	}
	return c
}
