// What the host asks of CUDA for weights that are kept in another form from call to call: plain C,
// as main.cpp reads no CUDA header. Results are CUDA error codes.

// @held_weights deps:
// whether work given to the stream is recorded into a graph instead of run
extern "C" int stream_is_capturing(void* stream, int* capturing) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
    *capturing = status != cudaStreamCaptureStatusNone;
    return int(error);
}

// the event, which is made where there is none, stands for all work given to the stream so far
extern "C" int mark_event(void** event, void* stream) {
    auto& own = *reinterpret_cast<cudaEvent_t*>(event);
    const cudaError_t error =
        own ? cudaSuccess : cudaEventCreateWithFlags(&own, cudaEventDisableTiming);
    return int(error ? error : cudaEventRecord(own, static_cast<cudaStream_t>(stream)));
}

// later work of the stream waits for the event
extern "C" int wait_for_event(void* event, void* stream) {
    return int(
        cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0));
}

// the host waits for the event, which nobody needs any more
extern "C" int end_event(void* event) {
    const cudaError_t error = cudaEventSynchronize(static_cast<cudaEvent_t>(event));
    cudaEventDestroy(static_cast<cudaEvent_t>(event));
    return int(error);
}
