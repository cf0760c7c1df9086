// A section of driver_facts.cu.
#pragma once
#include "common.cuh"

#include <atomic>
#include <chrono>

// ---- threads: do pages that one thread makes hold up the launches, or the pages, of another? ----
//
// One thread launches an empty kernel again and again, and waits for them every LAUNCH_BURST; others make, map, open,
// unmap and release a handle of 12 MiB again and again, or only one of these calls' kinds.

static const u64 THREADS_PAGE = 12 * MIB;
static const int THREADS_MS = 400, LAUNCH_BURST = 200;

enum ThreadWork { THREAD_NONE, THREAD_CREATES, THREAD_OPENS, THREAD_PAGES };
static const char *const THREAD_NAMES[] = {"nobody", "create, release", "open, unmap", "all of a page"};

// us of each round of what one thread does until it is told to stop.
static std::vector<double> page_rounds(ThreadWork work, const std::atomic<bool> &stop) {
    CK(cuCtxSetCurrent(g_context));
    CUmemAllocationProp prop = allocation_prop();
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle;
    std::vector<double> all;
    CK(cuMemAddressReserve(&at, THREADS_PAGE, 0, 0, 0));
    CK(cuMemCreate(&handle, THREADS_PAGE, &prop, 0));
    while (!stop) {
        double begin = now_us();
        if (work != THREAD_OPENS) {
            CK(cuMemRelease(handle));
            CK(cuMemCreate(&handle, THREADS_PAGE, &prop, 0));
        }
        if (work != THREAD_CREATES) {
            CK(cuMemMap(at, THREADS_PAGE, 0, handle, 0));
            set_access(at, THREADS_PAGE);
            CK(cuMemUnmap(at, THREADS_PAGE));
        }
        all.push_back(now_us() - begin);
    }
    CK(cuMemRelease(handle));
    CK(cuMemAddressFree(at, THREADS_PAGE));
    return all;
}

static std::vector<double> launches(const std::atomic<bool> &stop) {
    CK(cuCtxSetCurrent(g_context));
    CUstream stream;
    std::vector<double> all;
    CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!stop) {
        for (int i = 0; i < LAUNCH_BURST; i++) {
            double begin = now_us();
            spin_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(0);
            all.push_back(now_us() - begin);
        }
        CK(cudaGetLastError());
        CK(cuStreamSynchronize(stream));
    }
    CK(cuStreamDestroy(stream));
    return all;
}

static double at_share(std::vector<double> v, double share) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0.0 : v[(size_t)(share * (v.size() - 1))];
}

static double mean(const std::vector<double> &v) {
    double sum = 0;
    for (double x : v) sum += x;
    return v.empty() ? 0.0 : sum / v.size();
}

static void threads_row(bool launching, ThreadWork work, int makers) {
    std::atomic<bool> stop(false);
    std::vector<double> launched;
    std::vector<std::vector<double>> rounds(makers);
    std::vector<std::thread> threads;
    if (launching) threads.emplace_back([&] { launched = launches(stop); });
    for (int i = 0; i < makers; i++) threads.emplace_back([&, i] { rounds[i] = page_rounds(work, stop); });
    std::this_thread::sleep_for(std::chrono::milliseconds(THREADS_MS));
    stop = true;
    for (std::thread &thread : threads) thread.join();
    std::vector<double> all;
    for (const std::vector<double> &some : rounds) all.insert(all.end(), some.begin(), some.end());
    printf("  %-8s %7d %-16s %9.2f %9.2f %9.2f %9.1f %9.1f %9zu\n", launching ? "yes" : "no", makers, THREAD_NAMES[work],
           median(launched), mean(launched), at_share(launched, 0.99), median(all), mean(all), all.size());
    fflush(stdout);
}

static void section_threads() {
    printf("\n[threads] us of a launch by one thread and of a round by each of others, %d ms a row\n", THREADS_MS);
    printf("  %-8s %7s %-16s %9s %9s %9s %9s %9s %9s\n", "launches", "others", "each of them", "launch", "mean", "p99", "round",
           "mean", "rounds");
    threads_row(true, THREAD_NONE, 0);
    for (int work = THREAD_CREATES; work <= THREAD_PAGES; work++) {
        threads_row(false, (ThreadWork)work, 1);
        threads_row(true, (ThreadWork)work, 1);
        threads_row(false, (ThreadWork)work, 2);
    }
}
