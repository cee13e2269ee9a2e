// Package gocronlock lets the schedulers of several processes share their jobs, with gocron v2
// (github.com/go-co-op/gocron/v2) and the locks of package dblock.
//
//	locker, err := gocronlock.Every(client, time.Minute)
//	…
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	…
//	s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(locker.Task("report", report)), gocron.WithName("report"))
//
// # Choice
//
// Begin with Every, which runs a job once in each slot of time, on the database's clock. At runs a
// job once for each time of a cron expression. Hold takes a plain lock and keeps it for a minimum
// time. Elector runs all jobs on one process.
//
// There is no lock that is free as soon as the job has ended. The clocks and ticks of schedulers
// differ, so a short job would run once on each of them.
//
// # Names
//
// gocron asks for a lock by the name of the job. Without gocron.WithName that is the name of the
// job's function, which all closures of one place in the code share. So give each job a name, the
// same one in all processes.
//
// # Limits of gocron
//
// gocron does not notify a job that its lock was lost. Locker.Task and Elector.Task do: they end
// its context, with cause dblock.ErrLost.
//
// A locker does not know the time for which the job was due, nor how the job ended. So Every and At
// use the time at which Lock was called, and without Locker.Task each run counts as a success.
//
// With an elector, gocron does not use its locker at all.
package gocronlock
