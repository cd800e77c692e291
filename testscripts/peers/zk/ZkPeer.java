import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryForever;

/**
 * Takes locks on ZooKeeper with Curator: mutex|read|write ADDR PATH try|take|hold|contend.
 *
 * <p>try asks once, and exits with 75 if somebody else has the lock; take waits for it; hold says
 * "held" and releases at the end of stdin; contend takes it again and again, in three threads, until
 * there is a file "stop", and runs "sh peersection KIND FLOCK" under it.
 */
public class ZkPeer {
  static final int BUSY = 75;

  public static void main(String[] args) throws Exception {
    String kind = args[0], addr = args[1], path = args[2], mode = args[3];
    if (mode.equals("contend")) {
      contend(kind, addr, path);
      System.exit(0);
    }
    CuratorFramework client = connect(addr);
    InterProcessLock lock = newLock(client, kind, path);
    if (!lock.acquire(mode.equals("take") ? 60_000 : 100, TimeUnit.MILLISECONDS)) {
      client.close();
      System.exit(BUSY);
    }
    if (mode.equals("hold")) {
      System.out.println("held");
      while (System.in.read() >= 0) {}
    }
    lock.release();
    client.close();
    System.exit(0);
  }

  static CuratorFramework connect(String addr) throws Exception {
    CuratorFramework client = CuratorFrameworkFactory.newClient(addr, 2000, 10_000, new RetryForever(100));
    client.start();
    client.blockUntilConnected();
    return client;
  }

  static InterProcessLock newLock(CuratorFramework client, String kind, String path) {
    switch (kind) {
      case "read":
        return new InterProcessReadWriteLock(client, path).readLock();
      case "write":
        return new InterProcessReadWriteLock(client, path).writeLock();
      default:
        return new InterProcessMutex(client, path);
    }
  }

  static void contend(String kind, String addr, String path) throws Exception {
    List<Thread> all = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      CuratorFramework client = connect(addr);
      InterProcessLock lock = newLock(client, kind, path);
      Thread t =
          new Thread(
              () -> {
                try {
                  while (!Files.exists(Path.of("stop"))) {
                    lock.acquire();
                    try {
                      section(kind);
                    } finally {
                      lock.release();
                    }
                  }
                } catch (Exception e) {
                  note("faults", "curator " + kind + ": " + e);
                } finally {
                  client.close();
                }
              });
      t.start();
      all.add(t);
    }
    for (Thread t : all) {
      t.join();
    }
  }

  static void section(String kind) throws Exception {
    new ProcessBuilder("sh", "peersection", "curator-" + kind, kind.equals("read") ? "-s" : "-x").start().waitFor();
  }

  static void note(String file, String text) {
    try {
      Files.write(
          Path.of(file),
          (text + "\n").getBytes(StandardCharsets.UTF_8),
          StandardOpenOption.CREATE,
          StandardOpenOption.APPEND);
    } catch (Exception e) {
      e.printStackTrace();
    }
  }
}
